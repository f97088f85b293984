// Rows split into chunks that are summed by themselves.
// Here because planner and kernels must agree on the split, and the planner has no device.
#pragma once

#include <cstdint>

namespace reprise {

// Chunk k is rows k * rows to (k + 1) * rows of M, the last one shorter.
struct CudaRowChunks {
  uint64_t M;
  uint64_t rows;

  constexpr uint32_t count() const { return M == 0 ? 1 : static_cast<uint32_t>((M + rows - 1) / rows); }
  constexpr uint64_t begin(uint32_t k) const { return k * rows; }
  constexpr uint64_t end(uint32_t k) const { return k * rows + rows < M ? k * rows + rows : M; }
};

// At most `most` chunks, each of at least `least_rows` rows (unless there are fewer in all).
constexpr CudaRowChunks cuda_row_chunks(uint64_t M, uint64_t most_chunks, uint64_t least_rows) {
  const uint64_t rows = (M + most_chunks - 1) / most_chunks;
  return {M, rows < least_rows ? least_rows : rows};
}

}  // namespace reprise
