// Uses of a trained model: evaluating its weights, and predicting for pictures and texts.
#pragma once

#include "lib/port.h"
#include "tools/run/session/compiled_plan.h"
#include "tools/run/session/program_options.h"

namespace reprise {

// Evaluates weights, or predicts samples. Prints the result on stdout and returns the exit status.
// Throws UserError.
int evaluate_weights(const CompiledPlan& compiled, const ProgramOptions& options);
int predict_samples(const CompiledPlan& compiled, const ProgramOptions& options);

}  // namespace reprise
