// The register tile for NEON as every AArch64 has it: 12 rows x 8 columns of C. It reads A by
// vectors and multiplies by one of their lanes, which the tiles of gemm_tile.cpp cannot express.
//
// 24 of the 32 registers contain sums, 2 contain a depth of B, and 3 contain a depth of A: 24
// multiply-adds for 5 loads. 8 x 12 would need as many loads. 12 x 8 was chosen because columns are
// mostly channels, in multiples of eight, and rows are mostly pixels or tokens, which are many
// (tests/bench/pages/NEON.md).
#include "lib/cpu/gemm/gemm_tile.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#include "lib/cpu/vector_level.h"

namespace reprise {
namespace {

#define REPRISE_UNROLLED _Pragma("GCC unroll 16")

// The loops over these constants must unroll at any -O level: `of` must stay in registers, and the
// index of a lane is a constant in the instruction.
constexpr uint32_t kRows = 12, kVectors = 2, kColumns = 4 * kVectors;
template <uint32_t kCount>
struct SumsOf {
  float32x4_t of[kCount][kVectors];
};
using Sums = SumsOf<kRows>;

template <uint32_t kCount>
REPRISE_INLINE void clear(SumsOf<kCount>& sums) {
  REPRISE_UNROLLED for (uint32_t i = 0; i < kCount; ++i) {
    REPRISE_UNROLLED for (uint32_t v = 0; v < kVectors; ++v) sums.of[i][v] = vdupq_n_f32(0.0f);
  }
}

// Adds one depth; its elements of A are contiguous.
template <uint32_t kCount>
REPRISE_INLINE void add_depth(SumsOf<kCount>& sums, const float* a, const float* b_panel) {
  constexpr uint32_t kQuads = kCount / 4;
  float32x4_t b[kVectors], x[kQuads];
  REPRISE_UNROLLED for (uint32_t v = 0; v < kVectors; ++v) b[v] = vld1q_f32(b_panel + 4 * v);
  REPRISE_UNROLLED for (uint32_t q = 0; q < kQuads; ++q) x[q] = vld1q_f32(a + 4 * q);
  REPRISE_UNROLLED for (uint32_t i = 0; i < kCount; ++i) {
    REPRISE_UNROLLED for (uint32_t v = 0; v < kVectors; ++v) sums.of[i][v] =
        vfmaq_n_f32(sums.of[i][v], b[v], x[i / 4][i % 4]);
  }
}

// Adds one depth of A's rows, which may be at any addresses.
REPRISE_INLINE void add_row_depth(Sums& sums, const float* const* rows, uint64_t p, const float* b_panel) {
  float32x4_t b[kVectors];
  REPRISE_UNROLLED for (uint32_t v = 0; v < kVectors; ++v) b[v] = vld1q_f32(b_panel + 4 * v);
  REPRISE_UNROLLED for (uint32_t i = 0; i < kRows; ++i) {
    REPRISE_UNROLLED for (uint32_t v = 0; v < kVectors; ++v) sums.of[i][v] =
        vfmaq_n_f32(sums.of[i][v], b[v], rows[i][p]);
  }
}

// Adds two depths: one load reads both elements of a row. The empty instructions keep g++ from
// splitting that load, and from loading all rows before the multiplications: there are too few
// registers for all rows.
REPRISE_INLINE void add_two_row_depths(Sums& sums, const float* const* rows, uint64_t p, const float* b_panel) {
  float32x4_t b[2][kVectors];
  REPRISE_UNROLLED for (uint32_t v = 0; v < kVectors; ++v) {
    b[0][v] = vld1q_f32(b_panel + 4 * v);
    b[1][v] = vld1q_f32(b_panel + kColumns + 4 * v);
  }
  REPRISE_UNROLLED for (uint32_t i = 0; i < kRows; ++i) {
    float32x2_t x = vld1_f32(rows[i] + p);
    asm("" : "+w"(x));
    REPRISE_UNROLLED for (uint32_t d = 0; d < 2; ++d) {
      REPRISE_UNROLLED for (uint32_t v = 0; v < kVectors; ++v) sums.of[i][v] =
          vfmaq_n_f32(sums.of[i][v], b[d][v], x[d]);
    }
    asm volatile("" : : : "memory");
  }
}

// Writes C. `beta` is 0 or 1 in practice, but any value works.
template <uint32_t kCount>
REPRISE_INLINE void put(const SumsOf<kCount>& sums, float beta, float* c, int64_t row_stride) {
  REPRISE_UNROLLED for (uint32_t i = 0; i < kCount; ++i, c += row_stride) {
    REPRISE_UNROLLED for (uint32_t v = 0; v < kVectors; ++v) {
      float* place = c + 4 * v;
      vst1q_f32(place, beta == 0.0f ? sums.of[i][v] : vfmaq_n_f32(sums.of[i][v], vld1q_f32(place), beta));
    }
  }
}

constexpr uint64_t kDepthsAhead = 16;

void run_neon(const GemmTile&, uint64_t k, const float* a, const float* b_panel, float beta, float* c,
              int64_t row_stride, int64_t) {
  Sums sums;
  clear(sums);
  for (const float* end = a + k * kRows; a != end; a += kRows, b_panel += kColumns) {
    __builtin_prefetch(a + kDepthsAhead * kRows, 0, 2);
    add_depth(sums, a, b_panel);
  }
  put(sums, beta, c, row_stride);
}

// Not inlined, so that tests/ports/boards/neon_test.sh can count the loop of each instance.
template <uint32_t kCount>
[[gnu::noinline]] void run_neon_of(uint64_t k, const DepthOperand& a, const DepthOperand& b, float beta, float* c,
                                   int64_t row_stride) {
  SumsOf<kCount> sums;
  clear(sums);
  const float *place = a.data, *b_panel = b.data;
  for (uint64_t p = 0; p < k; ++p, place += a.step, b_panel += b.step) {
    __builtin_prefetch(place + a.ahead, 0, 2);
    __builtin_prefetch(b_panel + b.ahead, 0, 2);
    add_depth(sums, place, b_panel);
  }
  put(sums, beta, c, row_stride);
}
void run_neon_depths(uint32_t rows, uint64_t k, const DepthOperand& a, const DepthOperand& b, float beta, float* c,
                     int64_t row_stride) {
  if (rows == kRows) return run_neon_of<kRows>(k, a, b, beta, c, row_stride);
  if (rows == 8) return run_neon_of<8>(k, a, b, beta, c, row_stride);
  run_neon_of<4>(k, a, b, beta, c, row_stride);
}

// Floats in a cache line. While the tile uses one cache line of each row, it prefetches the
// corresponding cache line of the next row panel (RowRun::ahead).
constexpr uint32_t kLineFloats = 16;
void run_neon_rows(const RowRun* runs, uint32_t count, const float* b_panel, float beta, float* c, int64_t row_stride) {
  Sums sums;
  clear(sums);
  for (const RowRun* end = runs + count; runs != end; ++runs) {
    const float* rows[kRows];
    REPRISE_UNROLLED for (uint32_t i = 0; i < kRows; ++i) rows[i] = runs->rows[i];
    for (uint32_t p = 0; p < runs->depths;) {
      if (runs->ahead != 0) {
        REPRISE_UNROLLED for (uint32_t i = 0; i < kRows; ++i) __builtin_prefetch(rows[i] + p + runs->ahead, 0, 2);
      }
      const uint32_t line = runs->depths - p < kLineFloats ? runs->depths : p + kLineFloats;
      for (; p + 2 <= line; p += 2, b_panel += 2 * kColumns) add_two_row_depths(sums, rows, p, b_panel);
      for (; p < line; ++p, b_panel += kColumns) add_row_depth(sums, rows, p, b_panel);
    }
  }
  put(sums, beta, c, row_stride);
}

}  // namespace

GemmTile neon_gemm_tile() { return {"neon-12x8", kRows, kColumns, false, run_neon, run_neon_rows, run_neon_depths, 4}; }

}  // namespace reprise
#else
namespace reprise {
GemmTile neon_gemm_tile() { return {}; }
}  // namespace reprise
#endif
