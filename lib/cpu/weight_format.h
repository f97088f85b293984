// Reads a matrix of weights in any format (lib/weight_format.h) as f32, on the CPU.
#pragma once

#include "lib/cpu/vector_level.h"
#include "lib/weight_format.h"

namespace reprise {

// Decodes elements [first, first + count) of the row-major matrix to `to`. The format must be one
// of kEveryWeight.
void decode_weights(VectorLevel level, const Weight& w, uint64_t first, uint64_t count, float* to);

// Returns the address of elements [first, first + count) as f32: in place if the matrix is f32,
// else decoded into `space`, which has space for `count` floats.
inline const float* find_weights(VectorLevel level, const Weight& w, uint64_t first, uint64_t count, float* space) {
  if (w.type == DType::kF32) return w.f32() + first;
  decode_weights(level, w, first, count, space);
  return space;
}

}  // namespace reprise
