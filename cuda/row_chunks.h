// The split of rows into chunks that are summed separately. Planner and kernels must use the same
// split, and the planner has no device.
#pragma once

#include <cstdint>

namespace reprise {

// A split of M rows. Chunk k has rows [k * rows, (k + 1) * rows); the last chunk may be shorter.
struct CudaRowChunks {
  uint64_t M;
  uint64_t rows;

  constexpr uint32_t count() const { return M == 0 ? 1 : static_cast<uint32_t>((M + rows - 1) / rows); }
  constexpr uint64_t begin(uint32_t k) const { return k * rows; }
  constexpr uint64_t end(uint32_t k) const { return k * rows + rows < M ? k * rows + rows : M; }
};

// Splits M rows into at most `max_chunks` chunks of at least `min_rows` rows each, except the
// last.
constexpr CudaRowChunks cuda_row_chunks(uint64_t M, uint64_t max_chunks, uint64_t min_rows) {
  const uint64_t rows = (M + max_chunks - 1) / max_chunks;
  return {M, rows < min_rows ? min_rows : rows};
}

}  // namespace reprise
