// How the parameter gradients of layer-norm and RMS-norm are split over rows, and the scratch that the split takes.
// Here because planner and kernel must agree on it, and the planner has no device.
#pragma once

#include "cuda/card_size.h"
#include "cuda/row_chunks.h"

namespace reprise {

// At least 16 rows, so that the partials of many rows take an eighth of x or less, and at most four chunks for each multiprocessor, on a
// small card sixteen.
constexpr CudaRowChunks cuda_layer_norm_chunks(uint64_t M, CardSize card) {
  return cuda_row_chunks(M, multiprocessors_of(card) * (card == CardSize::kSmall ? 16 : 4), 16);
}

// partials[chunk][2][C], f32: the sums over the chunk's rows of dy * xhat, then of dy.
constexpr uint64_t cuda_layer_norm_backward_scratch_bytes(uint64_t M, uint64_t C, CardSize card) {
  return cuda_layer_norm_chunks(M, card).count() * 2 * C * sizeof(float);
}
// RMS-norm has the first alone.
constexpr uint64_t cuda_rms_norm_backward_scratch_bytes(uint64_t M, uint64_t C, CardSize card) {
  return cuda_layer_norm_backward_scratch_bytes(M, C, card) / 2;
}

}  // namespace reprise
