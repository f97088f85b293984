// What DoRA's magnitudes start as: the lengths of the rows of the weights beside which they are trained.
// Here because these are known only when the state has its weights, from a file or from the seed.
#pragma once

#include "lib/trainer.h"
#include "tools/formats/input_file.h"

namespace reprise {

// Sets every magnitude of the state to the length of its row of the weight in the state, computed in double and rounded: a training of DoRA
// starts with the base's own output. Nothing where the plan has no DoRA. `streamed`: the file of the weights that are not in the arena.
void start_magnitudes(const Trainer& trainer, const InputFile* streamed);

}  // namespace reprise
