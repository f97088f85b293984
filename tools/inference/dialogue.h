// `--chat`: a person and a model in turn, by the model's own chat template, from the plan's own memory.
// Here so that whoever has trained a model can talk with it, under the plan that trained it.
#pragma once

#include <istream>

#include "tools/session/compiled_plan.h"
#include "tools/session/program_options.h"

namespace reprise {

// Each line of `in` is what the user says, and is answered on stdout; "/new" begins another conversation, and an empty line says nothing.
// A conversation that the plan's caches have no room for loses its oldest questions and answers, which a warning says. Answers the exit
// status at the end of `in`. Throws UserError.
int converse(const CompiledPlan& compiled, const ProgramOptions& options, std::istream& in);

}  // namespace reprise
