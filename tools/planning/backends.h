// The backends that a recipe may name, by their rules: all that tools see of a backend.
#pragma once

#include <string>

#include "lib/backend_rules.h"
#include "tools/lowering/owned_plan.h"
#include "tools/recipes/recipe.h"

namespace reprise {

// The rules that a recipe is planned with; "auto" is planned for the CPU.
const BackendRules& backend_of(const Recipe& recipe);

// All of them, the CPU's first; of a card's the two whose math is f32: the others have the same kernels and take the same weights.
const std::vector<const BackendRules*>& all_backends();

// The names of the plan's kernels that its backend lacks, each once: such a plan is proved, and refused by bind.
std::vector<std::string> missing_kernels(const BackendRules& rules, const OwnedPlan& plan);

}  // namespace reprise
