// Suggests smaller plans for a board that has too little memory for the program's plan.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tools/run/session/compiled_plan.h"

namespace reprise {

// Returns a text such as "; --start-budget 1 (3.0 GiB) would fit". It names the largest plan that
// fits, among the program's smaller plans and plans for smaller budgets, which planning the recipe
// again would give. If no plan fits, it names all of them. Returns "" if no smaller plan is known.
std::string smaller_that_fit(const CompiledPlan& compiled, uint32_t number,
                             const std::function<bool(uint64_t bytes)>& has_space);

}  // namespace reprise
