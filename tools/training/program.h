// The training program around a compiled plan: command line, data, log, snapshots, progress (tools/FORMATS.md).
// Here so that train.cpp holds nothing but the plan.
#pragma once

#include "lib/plan.h"
#include "lib/port.h"

namespace reprise {

// What plan.h holds.
struct CompiledPlan {
  const Plan& plan;
  const char* recipe;   // the canonical recipe's text
  const char* summary;  // the plan in a few lines, for a person
};

// Trains on that board; answers the exit status.
int run_training(const CompiledPlan& compiled, const Port& port, int argc, char** argv);

}  // namespace reprise
