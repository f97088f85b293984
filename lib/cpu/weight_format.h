// How the CPU reads a matrix of weights, whatever its format (lib/weight_format.h): as f32.
#pragma once

#include "lib/cpu/vector_level.h"
#include "lib/weight_format.h"

namespace reprise {

// Elements [first, first + count) of the matrix, counted row by row; its format must be one of kEveryWeight.
void decode_weights(VectorLevel level, const Weight& w, uint64_t first, uint64_t count, float* to);

// The same where they lie, if they lie there as f32, else decoded into `room`, which has space for `count`.
inline const float* find_weights(VectorLevel level, const Weight& w, uint64_t first, uint64_t count, float* room) {
  if (w.type == DType::kF32) return w.f32() + first;
  decode_weights(level, w, first, count, room);
  return room;
}

}  // namespace reprise
