// The training program around a compiled plan: command line, data, log, snapshots, progress (DESIGN 9).
// Here so that train.cpp holds nothing but the plan.
// It must not plan.
#pragma once

#include "lib/plan.h"

namespace reprise {

// What plan.h holds.
struct CompiledPlan {
  const Plan& plan;
  const char* recipe;   // the canonical recipe's text
  const char* summary;  // the plan in a few lines, for a person
};

// Answers the exit status.
int run_training(const CompiledPlan& compiled, int argc, char** argv);

}  // namespace reprise
