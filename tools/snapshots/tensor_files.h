// One tensor of the state, and the files that hold it: under which name, in which shape and type, and its bytes in their order.
// Here because only here a convolution weight's [K,R,S,C] meets the file's [K,C,R,S], and because the state's bytes may go to an arena or to a file.
// Tensors come and go in pieces through one small buffer: a snapshot needs no copy of the weights.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lib/plan.h"
#include "tools/formats/safetensors.h"
#include "tools/weights/weight_source.h"

namespace reprise {

// The shape that files give to a tensor: a convolution's weight is [K,C,R,S] there.
std::vector<uint64_t> stored_shape(const Tensor& tensor);
StoredType stored_type(DType type);

// A tensor of the state, and whether it may be rounded to what it is kept as: trained weights may, frozen ones are what their file has.
struct WantedTensor {
  const StateTensor& state;
  bool may_round = false;
};

// The name under which the source holds a tensor of the state, which must have its shape and a type that it takes. Throws UserError.
std::string find_tensor(const WeightSource& source, const WantedTensor& wanted);

// Refuses values that would train to nothing: what is not finite, or a variance below zero.
void require_sense(const WeightSource& source, const StateTensor& state, const std::string& name);

// The source's tensor as the state holds it, piece after piece.
using TensorSink = std::function<void(const void* piece, uint64_t bytes)>;
void read_tensor(const WeightSource& source, const std::string& name, const Tensor& tensor, const TensorSink& sink);

// The other way. `piece(at, to, bytes)` fetches bytes of the state's tensor.
using TensorPiece = std::function<void(uint64_t at, void* to, uint64_t bytes)>;
void write_tensor(const Tensor& tensor, const TensorPiece& piece, const TensorSink& sink);

}  // namespace reprise
