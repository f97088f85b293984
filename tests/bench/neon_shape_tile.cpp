// See neon_shape_tile.h. Like the kernels, it is compiled so that it reports its accesses.
#include "tests/bench/neon_shape_tile.h"

#include <cstring>

namespace reprise::bench {
namespace {

typedef float Vector __attribute__((vector_size(16)));
constexpr uint32_t kRows = 8, kVectors = 2, kWidth = 4, kColumns = kVectors * kWidth;
using Sums = Vector[kRows][kVectors];

#define REPRISE_UNROLLED _Pragma("GCC unroll 8")

// Adds one depth to the sums. place(i) is the element of A in row i.
template <typename Place>
[[gnu::always_inline]] inline void add_depth(Sums& sums, const float* b_panel, const Place& place) {
  Vector b[kVectors];
  std::memcpy(&b[0], b_panel, sizeof(Vector));
  std::memcpy(&b[1], b_panel + kWidth, sizeof(Vector));
  REPRISE_UNROLLED for (uint32_t i = 0; i < kRows; ++i) {
    const float x = *place(i);
    REPRISE_UNROLLED for (uint32_t v = 0; v < kVectors; ++v) sums[i][v] += b[v] * x;
  }
}

[[gnu::always_inline]] inline void put(const Sums& sums, float beta, float* c, int64_t row_stride) {
  REPRISE_UNROLLED for (uint32_t i = 0; i < kRows; ++i, c += row_stride) {
    REPRISE_UNROLLED for (uint32_t v = 0; v < kVectors; ++v) {
      Vector sum = sums[i][v];
      if (beta != 0.0f) {
        Vector before;
        std::memcpy(&before, c + v * kWidth, sizeof before);
        sum += before * beta;
      }
      std::memcpy(c + v * kWidth, &sum, sizeof sum);
    }
  }
}

void run_depths(uint32_t, uint64_t k, const DepthOperand& a, const DepthOperand& b, float beta, float* c,
                int64_t row_stride) {
  Sums sums = {};
  for (uint64_t p = 0; p < k; ++p) {
    const float* place = a.data + static_cast<int64_t>(p) * a.step;
    add_depth(sums, b.data + static_cast<int64_t>(p) * b.step, [&](uint32_t i) { return place + i; });
  }
  put(sums, beta, c, row_stride);
}
void run(const GemmTile&, uint64_t k, const float* a, const float* b_panel, float beta, float* c, int64_t row_stride,
         int64_t) {
  run_depths(kRows, k, {a, kRows, 0}, {b_panel, kColumns, 0}, beta, c, row_stride);
}
void run_rows(const RowRun* runs, uint32_t count, const float* b_panel, float beta, float* c, int64_t row_stride) {
  Sums sums = {};
  for (const RowRun* end = runs + count; runs != end; ++runs) {
    const float* row[kRows];
    REPRISE_UNROLLED for (uint32_t i = 0; i < kRows; ++i) row[i] = runs->rows[i];
    for (uint32_t p = 0; p < runs->depths; ++p, b_panel += kColumns)
      add_depth(sums, b_panel, [&](uint32_t i) { return row[i] + p; });
  }
  put(sums, beta, c, row_stride);
}

}  // namespace

GemmTile neon_shape_tile() { return {"neon-8x8", kRows, kColumns, false, run, run_rows, run_depths, kRows}; }

}  // namespace reprise::bench
