// The training program around a compiled plan: command line, data, log, snapshots, progress (tools/FORMATS.md).
// Here so that train.cpp and its twins hold nothing but their plans.
#pragma once

#include <vector>

#include "lib/plan.h"
#include "lib/port.h"

namespace reprise {

// What plan.h holds, and the board that it was planned for.
struct CompiledPlan {
  const Plan& plan;
  const char* recipe;   // the canonical recipe's text
  const char* summary;  // the plan in a few lines, for a person
  const Port& port;
  const char* hash = "";  // names the plan, as its manifest does
};

// Trains by the first plan whose board can run it now: its backend opens, and it has the memory for the arena. Of several choices it says
// which one it takes, and what is in the way of those before. Answers the exit status.
int run_training(const std::vector<CompiledPlan>& choices, int argc, char** argv);

}  // namespace reprise
