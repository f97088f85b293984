// A model's matrices in a format that its files do not have, quantised while they are read.
// Here so that a model that is larger than the memory becomes small on its way in: a piece of a tensor at a time.
#pragma once

#include "tools/weights/weight_source.h"

namespace reprise {

// The source's tensors; each matrix whose rows are whole blocks of `format`, of f32 every tensor, has that format, too, beside its exact numbers. read_stored() makes
// its blocks by quantise_blocks(), which must write the format. What is no number that is finite becomes blocks that mean nothing: who reads
// looks at the exact numbers first.
std::unique_ptr<WeightSource> quantise_weights(std::unique_ptr<WeightSource> source, DType format);

}  // namespace reprise
