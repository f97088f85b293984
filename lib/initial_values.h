// The initial numbers of parameters that have no other source, drawn from the plan's seed. bind()
// draws them into the arena. A program that stores parameters in another format than f32 or bf16
// draws them itself.
#pragma once

#include "lib/plan.h"

namespace reprise {

// Writes to values[count] the elements [first, first + count) of tensor `index` of the plan's
// State, whose init must be constant, normal or uniform. `first` must be even. Each tensor has its
// own random stream, keyed by the seed and by its index in State.
void initial_values(const Plan& plan, uint32_t index, uint64_t first, uint64_t count, float* values);

}  // namespace reprise
