// The training program, apart from its plans: command line, data, log, snapshots, progress
// (tools/COMMANDS.md). train.cpp and its variants contain only the plans.
#pragma once

#include <memory>
#include <vector>

#include "tools/run/session/compiled_plan.h"

namespace reprise {

// Trains with the first of `choices` that can run now: its backend opens, and its arena fits in
// memory. If there are several choices, reports which one it uses and why earlier ones cannot run.
// With --plan FILE, the plans in the file replace `choices`. Returns the exit status.
int run_training(const std::vector<CompiledPlan>& choices, int argc, char** argv);

class FiledPlans;  // tools/run/session/filed_plans.h

// Trains as run_training() does. Each choice is the plans of one file, on the first of `boards`
// that has their backend. `argv` is as for a training program: its name, then options. Returns the
// exit status. Throws UserError if no board has a backend, or if a plan is not safe.
int run_filed_plans(const std::vector<std::unique_ptr<FiledPlans>>& choices, const std::vector<const Port*>& boards,
                    int argc, char** argv);

}  // namespace reprise
