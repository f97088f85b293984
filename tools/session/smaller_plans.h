// What a program whose board has too little memory for its plan could do instead.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tools/session/compiled_plan.h"

namespace reprise {

// "; --start-budget 1 (3.0 GiB) would fit": the largest of the program's other plans for whose bytes `has_room`, or else of the budgets for which planning
// the recipe again makes a smaller plan; and that none would fit where that is so. "" where nothing smaller is known.
std::string smaller_that_fit(const CompiledPlan& compiled, uint32_t number, const std::function<bool(uint64_t bytes)>& has_room);

}  // namespace reprise
