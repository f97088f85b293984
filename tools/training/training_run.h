// A training from its first step to its last: data, log, snapshots, evaluations, progress; from step to step no heap is touched.
#pragma once

#include "lib/port.h"
#include "tools/training/program.h"
#include "tools/training/training_options.h"

namespace reprise {

// Answers the exit status; throws UserError, having saved what was trained if it was told where.
int train(const CompiledPlan& compiled, const TrainingOptions& options);

}  // namespace reprise
