// Reads and writes one tensor of State in a file: its name, shape and type there, and the order of
// its bytes. Only this module converts a convolution's weight between memory's [K,R,S,C] and a
// file's [K,C,R,S]. State's bytes may be in an arena or in a file. Tensors are copied in pieces
// through a small buffer, so that a snapshot needs no copy of the weights.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lib/plan.h"
#include "tools/files/formats/safetensors.h"
#include "tools/files/weights/stored_form.h"
#include "tools/files/weights/weight_source.h"

namespace reprise {

// Returns the type in a safetensors file for a type of State.
StoredType stored_type(DType type);

// A tensor of State that is read from a file. `may_round`: true for trained weights, which may be
// rounded to their type in State; frozen weights are stored as in their file.
struct WantedTensor {
  const StateTensor& state;
  bool may_round = false;
};

// Returns the name of the source's tensor for a tensor of State. Throws UserError if it is missing,
// or has another shape or a type that is not accepted.
std::string find_tensor(const WeightSource& source, const WantedTensor& wanted);

// Throws UserError if a value is not finite, or a variance is negative.
void require_sense(const WeightSource& source, const StateTensor& state, const std::string& name);

// Receives a tensor in pieces, in the order of its bytes.
using TensorSink = std::function<void(const void* piece, uint64_t bytes)>;
// Reads a tensor of a file, and passes it to the sink in the layout of State.
void read_tensor(const WeightSource& source, const std::string& name, const Tensor& tensor, const TensorSink& sink);

// Copies bytes [at, at + bytes) of a tensor of State to `to`.
using TensorPiece = std::function<void(uint64_t at, void* to, uint64_t bytes)>;
// Writes a tensor in the layout of files to the sink. `piece` reads the tensor in State.
void write_tensor(const Tensor& tensor, const TensorPiece& piece, const TensorSink& sink);

}  // namespace reprise
