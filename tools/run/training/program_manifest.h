// Finds the manifest that `reprise plan` wrote next to the program. Measurements of a run are added
// to it or compared with it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/run/session/compiled_plan.h"

namespace reprise {

// Returns a program's name in manifests and reports.
const char* program_name(ProgramId id);

// Returns the part of `manifest` for the plan with this hash: the whole manifest, or one of its
// "other_budgets". Returns null if there is none.
nlohmann::json* manifest_of_plan(nlohmann::json& manifest, const std::string& hash);

// Returns the paths where the manifest may be: next to the program, or next to its plan file.
std::vector<std::string> manifest_places(const CompiledPlan& compiled);

// Returns the manifest that contains the compiled plan; with backend "auto" it may be in the folder
// cuda/. Throws UserError if there is no manifest, or only manifests of other plans. `option` is
// the option that needs the manifest, for messages.
nlohmann::json manifest_of_program(const CompiledPlan& compiled, const std::string& option);

// Returns only the compiled plan's part of the manifest; null if manifest_of_program() would throw,
// for example because there is no manifest.
nlohmann::json manifest_if_there(const CompiledPlan& compiled);

}  // namespace reprise
