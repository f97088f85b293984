// The manifest that `reprise plan` wrote beside the program: what a measurement of the run stands beside.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/session/compiled_plan.h"

namespace reprise {

// As manifests and reports call them.
const char* program_name(ProgramId id);

// The manifest beside the program, of "auto" the one in its folder of the card, whose plan_hash is the compiled plan's. Throws UserError where there is
// none, or another plan's alone; `option` is who asks.
nlohmann::json manifest_of_program(const CompiledPlan& compiled, const std::string& option);

// The same for who can do without: null where there is none.
nlohmann::json manifest_if_there(const CompiledPlan& compiled);

}  // namespace reprise
