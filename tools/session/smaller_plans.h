// What a program whose board has too little memory for its plan could do instead.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tools/session/compiled_plan.h"

namespace reprise {

// "; --start-budget 1 (3.0 GiB) would fit": the largest for whose bytes there is room, of the program's smaller plans and of those that planning its
// recipe again would make. Where there is room for none it names them all; "" where nothing smaller is known.
std::string smaller_that_fit(const CompiledPlan& compiled, uint32_t number, const std::function<bool(uint64_t bytes)>& has_room);

}  // namespace reprise
