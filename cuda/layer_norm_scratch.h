// How the parameter gradients of layer-norm and RMS-norm are split over rows, and the scratch that the split takes.
// Here because planner and kernel must agree on it, and the planner has no device.
#pragma once

#include "cuda/row_chunks.h"

namespace reprise {

// At least 16 rows, so that the partials of many rows take an eighth of x or less, and at most 128 chunks, about one for each
// multiprocessor of the largest device.
constexpr CudaRowChunks cuda_layer_norm_chunks(uint64_t M) { return cuda_row_chunks(M, 128, 16); }

// partials[chunk][2][C], f32: the sums over the chunk's rows of dy * xhat, then of dy.
constexpr uint64_t cuda_layer_norm_backward_scratch_bytes(uint64_t M, uint64_t C) {
  return cuda_layer_norm_chunks(M).count() * 2 * C * sizeof(float);
}
// RMS-norm has the first alone.
constexpr uint64_t cuda_rms_norm_backward_scratch_bytes(uint64_t M, uint64_t C) { return cuda_layer_norm_backward_scratch_bytes(M, C) / 2; }

}  // namespace reprise
