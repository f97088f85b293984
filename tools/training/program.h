// The training program around a compiled plan: command line, data, log, snapshots, progress (tools/FORMATS.md).
// Here so that train.cpp and its twins hold nothing but their plans.
#pragma once

#include <vector>

#include "tools/session/compiled_plan.h"

namespace reprise {

// Trains by the first plan whose board can run it now: its backend opens, and it has the memory for the arena. Of several choices it says
// which one it takes, and what is in the way of those before. Answers the exit status. With --plan FILE the file's plans stand in for all these.
int run_training(const std::vector<CompiledPlan>& choices, int argc, char** argv);

class FiledPlans;  // tools/session/filed_plans.h

// The same with the plans of a file, on the first of the boards that has their backend. `argv` is that of a training program: its name, then
// options. Throws UserError where no board has it, or a plan is not safe.
int run_filed_plans(const FiledPlans& plans, const std::vector<const Port*>& boards, int argc, char** argv);

}  // namespace reprise
