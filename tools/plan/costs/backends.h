// The backends that a recipe may name. Tools use only their rules.
#pragma once

#include <string>

#include "lib/backend_rules.h"
#include "tools/plan/lowering/owned_plan.h"
#include "tools/plan/recipes/recipe.h"

namespace reprise {

// Returns the rules that a recipe is planned with; "auto" is planned for the CPU.
const BackendRules& backend_of(const Recipe& recipe);

// Returns all backends, the CPU's first. For cards these are only the two whose math is f32,
// because those with other math have the same kernels and accept the same weights.
const std::vector<const BackendRules*>& all_backends();

// Returns the names of the plan's kernels that its backend lacks, each once. Such a plan is proved,
// but bind refuses it.
std::vector<std::string> missing_kernels(const BackendRules& rules, const OwnedPlan& plan);

}  // namespace reprise
