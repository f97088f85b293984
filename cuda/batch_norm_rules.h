// How batch-norm's and group-norm's sums over rows are split, and the scratch that the split takes.
// Here because planner and kernel must agree on it, and the planner has no device.
#pragma once

#include "cuda/row_chunks.h"

namespace reprise {

constexpr uint64_t kCudaTileColumns = 128;  // channels that a block takes together
constexpr uint64_t cuda_column_tiles(uint64_t C) { return (C + kCudaTileColumns - 1) / kCudaTileColumns; }

// Chunks and tiles of channels together fill the largest device. At least 32 rows: the partials take an eighth of x in f32, or less.
constexpr CudaRowChunks cuda_batch_norm_chunks(uint64_t M, uint64_t C) {
  constexpr uint64_t kBlocks = 512;
  const uint64_t tiles = cuda_column_tiles(C);
  return cuda_row_chunks(M, tiles < kBlocks ? kBlocks / tiles : 1, 32);
}

// partials[chunk][2][C], f64.
constexpr uint64_t cuda_batch_norm_statistics_scratch_bytes(uint64_t M, uint64_t C) {
  return cuda_batch_norm_chunks(M, C).count() * 2 * C * sizeof(double);
}
// Behind the partials three f32 for each channel.
constexpr uint64_t cuda_batch_norm_backward_scratch_bytes(uint64_t M, uint64_t C) {
  return cuda_batch_norm_statistics_scratch_bytes(M, C) + 3 * C * sizeof(float);
}

// Group-norm's split of each sample's pixels: samples, chunks and tiles of channels fill the device.
constexpr CudaRowChunks cuda_group_norm_chunks(uint64_t N, uint64_t HW, uint64_t C) {
  return cuda_batch_norm_chunks(HW, N * cuda_column_tiles(C) * kCudaTileColumns);
}
// partials[N][chunk][2][C], f64.
constexpr uint64_t cuda_group_norm_partials_bytes(uint64_t N, uint64_t HW, uint64_t C) {
  return N * cuda_group_norm_chunks(N, HW, C).count() * 2 * C * sizeof(double);
}

}  // namespace reprise
