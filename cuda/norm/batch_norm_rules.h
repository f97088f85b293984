// The split of batch-norm's and group-norm's sums over rows, and the scratch that the split needs.
// Planner and kernels must use the same split, and the planner has no device.
#pragma once

#include "cuda/row_chunks.h"

namespace reprise {

constexpr uint64_t kCudaTileColumns = 128;  // channels that a block processes together
constexpr uint64_t cuda_column_tiles(uint64_t C) { return (C + kCudaTileColumns - 1) / kCudaTileColumns; }

// Splits M rows into chunks. A block processes one chunk of one tile of channels, and there are
// enough blocks to fill the largest device. A chunk has at least 32 rows, so the partials need at
// most an eighth of the bytes of x in f32.
constexpr CudaRowChunks cuda_batch_norm_chunks(uint64_t M, uint64_t C) {
  constexpr uint64_t kBlocks = 512;
  const uint64_t tiles = cuda_column_tiles(C);
  return cuda_row_chunks(M, tiles < kBlocks ? kBlocks / tiles : 1, 32);
}

// Returns the bytes of partials[chunk][2][C], f64.
constexpr uint64_t cuda_batch_norm_statistics_scratch_bytes(uint64_t M, uint64_t C) {
  return cuda_batch_norm_chunks(M, C).count() * 2 * C * sizeof(double);
}
// Returns the bytes of the partials and of three f32 for each channel, which follow the partials.
constexpr uint64_t cuda_batch_norm_backward_scratch_bytes(uint64_t M, uint64_t C) {
  return cuda_batch_norm_statistics_scratch_bytes(M, C) + 3 * C * sizeof(float);
}

// Splits each sample's pixels so that samples, chunks and tiles of channels fill the device.
constexpr CudaRowChunks cuda_group_norm_chunks(uint64_t N, uint64_t HW, uint64_t C) {
  return cuda_batch_norm_chunks(HW, N * cuda_column_tiles(C) * kCudaTileColumns);
}
// Returns the bytes of partials[N][chunk][2][C], f64.
constexpr uint64_t cuda_group_norm_partials_bytes(uint64_t N, uint64_t HW, uint64_t C) {
  return N * cuda_group_norm_chunks(N, HW, C).count() * 2 * C * sizeof(double);
}

}  // namespace reprise
