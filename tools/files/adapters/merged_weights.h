// Adds an adapter to a model; the sums are computed when a tensor is read. A merged model is thus
// written like every other model, and the complete model is never in memory.
#pragma once

#include <memory>

#include "tools/files/adapters/adapter.h"

namespace reprise {

// Returns the base's tensors, with scale * B A added to the tensors of the adapter's layers. An
// element is w + sum over r, in ascending order, of (scale * b_r) * a_r, in f32. For DoRA the sum
// is multiplied by its row's magnitude / length; the length is computed in f64 and rounded. Tensors
// that were trained directly come from the adapter, even if the base lacks them or has another
// shape. The names omit the adapter's matrices and magnitudes. If the model's head is tied, they
// also omit a head of the base. Keeps the A and B of one layer in memory; for DoRA each layer is
// read twice. Throws UserError if the base lacks a layer or has it in another shape.
std::unique_ptr<WeightSource> merge_adapter(std::shared_ptr<const WeightSource> base, const Adapter& adapter);

}  // namespace reprise
