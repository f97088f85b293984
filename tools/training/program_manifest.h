// The manifest that `reprise plan` wrote beside the program: what a measurement of the run stands beside.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/session/compiled_plan.h"

namespace reprise {

// As manifests and reports call them.
const char* program_name(ProgramId id);

// The part of a manifest that is the plan's of that hash: all of it, or one of its "other_budgets"; null where there is none.
nlohmann::json* manifest_of_plan(nlohmann::json& manifest, const std::string& hash);

// Returns where that manifest may be: beside the program, or beside its plan file.
std::vector<std::string> manifest_places(const CompiledPlan& compiled);

// The manifest beside the program, of "auto" the one in its folder of the card, that has the compiled plan. Throws UserError where there is
// none, or another plan's alone; `option` is who asks.
nlohmann::json manifest_of_program(const CompiledPlan& compiled, const std::string& option);

// That plan's part, for who can do without: null where there is none.
nlohmann::json manifest_if_there(const CompiledPlan& compiled);

}  // namespace reprise
