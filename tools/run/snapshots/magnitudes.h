// The initial values of DoRA's magnitudes: the lengths of the rows of the frozen weights. They are
// computed once State has these weights, from a file or from the seed.
#pragma once

#include "lib/trainer.h"
#include "tools/files/io/input_file.h"

namespace reprise {

// Sets each magnitude to the length of its row of the weight, computed in f64 and rounded. A DoRA
// training then starts with the same outputs as its base. Does nothing if the plan has no DoRA.
// `streamed` is the file of the weights that are not in the arena.
void start_magnitudes(const Trainer& trainer, const InputFile* streamed);

}  // namespace reprise
