// `--chat`: a conversation between a user and a model, in the model's own chat template. It runs in
// the memory of the plan that trained the model.
#pragma once

#include <istream>

#include "tools/run/session/compiled_plan.h"
#include "tools/run/session/program_options.h"

namespace reprise {

// Reads the user's messages from `in`, one per line, and prints each answer on stdout. "/new"
// starts another conversation; empty lines are ignored. If a conversation does not fit in the
// plan's caches, its oldest messages are dropped with a warning. Returns the exit status at the end
// of `in`. Throws UserError.
int converse(const CompiledPlan& compiled, const ProgramOptions& options, std::istream& in);

}  // namespace reprise
