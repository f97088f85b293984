// The training program around a compiled plan: command line, data, log, snapshots, progress (DESIGN 9).
// Here so that train.cpp holds nothing but the plan.
// It must not plan.
#pragma once

#include "lib/plan.h"

namespace reprise {

// `recipe`: the canonical recipe's text. Answers the exit status.
int run_training(const Plan& plan, const char* recipe, int argc, char** argv);

}  // namespace reprise
