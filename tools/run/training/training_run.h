// A training from its first step to its last: data, log, snapshots, evaluations, progress. The
// steps allocate no heap memory.
#pragma once

#include "lib/port.h"
#include "tools/run/session/compiled_plan.h"
#include "tools/run/session/program_options.h"

namespace reprise {

// Trains and returns the exit status. Throws UserError; if --save names a folder, it tries to save
// the weights of the last complete step first.
int train(const CompiledPlan& compiled, const ProgramOptions& options);

}  // namespace reprise
