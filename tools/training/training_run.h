// A training from its first step to its last: data, log, snapshots, evaluations, progress; from step to step no heap is touched.
#pragma once

#include "lib/port.h"
#include "tools/session/compiled_plan.h"
#include "tools/session/program_options.h"

namespace reprise {

// Answers the exit status; throws UserError, having saved what was trained if it was told where.
int train(const CompiledPlan& compiled, const ProgramOptions& options);

}  // namespace reprise
