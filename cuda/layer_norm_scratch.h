// How layer-norm's parameter gradients are split over rows, and the scratch that the split takes.
// Here because planner and kernel must agree on it, and the planner has no device.
#pragma once

#include <cstdint>

namespace reprise {

// Chunk k is rows k * rows to (k + 1) * rows of M, the last one shorter: at least 16 rows, so that the partials of many
// rows take an eighth of x or less, and at most 128 chunks, about one for each multiprocessor of the largest device.
struct CudaRowChunks {
  uint64_t M;
  uint64_t rows;

  constexpr uint32_t count() const { return M == 0 ? 1 : static_cast<uint32_t>((M + rows - 1) / rows); }
};

constexpr CudaRowChunks cuda_layer_norm_chunks(uint64_t M) {
  constexpr uint64_t kLeastRows = 16, kMostChunks = 128;
  const uint64_t rows = (M + kMostChunks - 1) / kMostChunks;
  return {M, rows < kLeastRows ? kLeastRows : rows};
}

// partials[chunk][2][C], f32: the sums over the chunk's rows of dy * xhat, then of dy.
constexpr uint64_t cuda_layer_norm_backward_scratch_bytes(uint64_t M, uint64_t C) {
  return cuda_layer_norm_chunks(M).count() * 2 * C * sizeof(float);
}

}  // namespace reprise
