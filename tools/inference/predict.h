// The use of what was trained: an evaluation of weights, and what a net says of pictures and texts.
#pragma once

#include "lib/port.h"
#include "tools/session/compiled_plan.h"
#include "tools/session/program_options.h"

namespace reprise {

// Each prints its result on stdout and answers the exit status; throws UserError.
int evaluate_weights(const CompiledPlan& compiled, const ProgramOptions& options);
int predict_samples(const CompiledPlan& compiled, const ProgramOptions& options);

}  // namespace reprise
