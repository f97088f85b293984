// The split of layer-norm's and RMS-norm's parameter gradients over rows, and the scratch that the
// split needs. Planner and kernels must use the same split, and the planner has no device.
#pragma once

#include "cuda/card_size.h"
#include "cuda/row_chunks.h"

namespace reprise {

// Splits M rows into chunks of at least 16 rows, so that the partials of many rows need at most an
// eighth of the bytes of x in f32. There are at most four chunks for each multiprocessor; on a
// small card, at most sixteen.
constexpr CudaRowChunks cuda_layer_norm_chunks(uint64_t M, CardSize card) {
  return cuda_row_chunks(M, multiprocessors_of(card) * (card == CardSize::kSmall ? 16 : 4), 16);
}

// Returns the bytes of partials[chunk][2][C], f32: the sums of dy * xhat and of dy over the chunk's
// rows.
constexpr uint64_t cuda_layer_norm_backward_scratch_bytes(uint64_t M, uint64_t C, CardSize card) {
  return cuda_layer_norm_chunks(M, card).count() * 2 * C * sizeof(float);
}
// Returns the bytes for RMS-norm, which only has the sums of dy * xhat.
constexpr uint64_t cuda_rms_norm_backward_scratch_bytes(uint64_t M, uint64_t C, CardSize card) {
  return cuda_layer_norm_backward_scratch_bytes(M, C, card) / 2;
}

}  // namespace reprise
