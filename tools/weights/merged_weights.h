// A model with its adapter added, computed where it is asked for.
// Here so that a merged model is written as any model is, and never lies in memory whole.
#pragma once

#include <memory>

#include "tools/weights/adapter.h"

namespace reprise {

// The base's tensors, those of the adapter's layers with scale * B A added in f32: an element is w + sum over r, from the first on, of
// (scale * b_r) * a_r; of DoRA that times its row's magnitude / length, where the length is computed in double and rounded. Tensors that
// were trained whole are the adapter's, also where the base has none, or one of another shape. The adapter's own tensors are not among
// the names, nor, where the model's head is tied, one that the base has all the same. Holds a layer's A and B; of DoRA each layer is
// read twice. Throws UserError where a layer is not in the base, or not of the adapter's shape.
std::unique_ptr<WeightSource> merge_adapter(std::shared_ptr<const WeightSource> base, const Adapter& adapter);

}  // namespace reprise
