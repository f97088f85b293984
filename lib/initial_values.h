// The numbers that a parameter starts from where nothing else gives it any: drawn from the plan's seed.
// Here because bind draws them into the arena, and a program that keeps them in another format than f32 or bf16 draws them itself.
#pragma once

#include "lib/plan.h"

namespace reprise {

// values[i]: element first + i of parameter `index` of the plan's state, which is constant, normal or uniform. `first` is even. Each parameter has
// a stream of its own, keyed by the seed and its place in the state.
void initial_values(const Plan& plan, uint32_t index, uint64_t first, uint64_t count, float* values);

}  // namespace reprise
