// The register tile for panels of pairs of bf16, by AVX512-BF16's vdpbf16ps, which adds two
// products to each lane's sum in f32. Only this file needs the instruction; the loop nest treats
// the tile as any other.
#include "lib/cpu/gemm/bf16_pairs.h"

#if defined(__x86_64__) && !defined(REPRISE_BASELINE_ONLY)
#include <immintrin.h>

#include <cstring>

namespace reprise {
namespace {

#define REPRISE_BF16_CODE gnu::target("avx512f,avx512bf16")
#define REPRISE_UNROLLED _Pragma("GCC unroll 16")

// 32 registers contain 24 sums, 2 vectors of B and 1 of A. The loops must unroll at any -O level,
// so that `of` stays in registers.
constexpr uint32_t kRows = 12, kVectors = 2, kWidth = 16, kColumns = kVectors * kWidth;
struct Sums {
  __m512 of[kRows][kVectors];
};

// An operand A: at() returns the address of the pair of row i at depth p.
struct PackedPanel {
  const float* first;
  REPRISE_INLINE const float* at(uint32_t i, uint64_t p) const { return first + p * kRows + i; }
};
struct RowsAsTheyLie {
  const float* row[kRows];
  REPRISE_INLINE const float* at(uint32_t i, uint64_t p) const { return row[i] + p; }
};

[[REPRISE_BF16_CODE, gnu::always_inline]] inline void clear(Sums& sums) {
  REPRISE_UNROLLED for (uint32_t i = 0; i < kRows; ++i) {
    REPRISE_UNROLLED for (uint32_t v = 0; v < kVectors; ++v) sums.of[i][v] = _mm512_setzero_ps();
  }
}

template <typename A>
[[REPRISE_BF16_CODE, gnu::always_inline]] inline void add_depth(Sums& sums, const A& a, uint64_t p,
                                                                const float* b_panel) {
  __m512bh b[kVectors];
  REPRISE_UNROLLED for (uint32_t v = 0; v < kVectors; ++v) b[v] = (__m512bh)_mm512_loadu_si512(b_panel + v * kWidth);
  REPRISE_UNROLLED for (uint32_t i = 0; i < kRows; ++i) {
    int32_t pair;
    std::memcpy(&pair, a.at(i, p), sizeof pair);
    const __m512bh x = (__m512bh)_mm512_set1_epi32(pair);
    REPRISE_UNROLLED for (uint32_t v = 0; v < kVectors; ++v) sums.of[i][v] = _mm512_dpbf16_ps(sums.of[i][v], x, b[v]);
  }
}

[[REPRISE_BF16_CODE, gnu::always_inline]] inline void put(const Sums& sums, float beta, float* c, int64_t row_stride) {
  const __m512 scale = _mm512_set1_ps(beta);
  REPRISE_UNROLLED for (uint32_t i = 0; i < kRows; ++i, c += row_stride) {
    REPRISE_UNROLLED for (uint32_t v = 0; v < kVectors; ++v) {
      float* place = c + v * kWidth;
      _mm512_storeu_ps(place,
                       beta == 0.0f ? sums.of[i][v] : _mm512_fmadd_ps(scale, _mm512_loadu_ps(place), sums.of[i][v]));
    }
  }
}

[[REPRISE_BF16_CODE]] void run(const GemmTile&, uint64_t k, const float* a_panel, const float* b_panel, float beta,
                               float* c, int64_t row_stride, int64_t) {
  Sums sums;
  clear(sums);
  const PackedPanel a{a_panel};
  for (uint64_t p = 0; p < k; ++p, b_panel += kColumns) add_depth(sums, a, p, b_panel);
  put(sums, beta, c, row_stride);
}

// Pairs in a cache line. While the tile uses one cache line of each row, it prefetches the
// corresponding cache line of the next row panel (RowRun::ahead).
constexpr uint32_t kLinePairs = 16;
[[REPRISE_BF16_CODE]] void run_rows(const RowRun* runs, uint32_t count, const float* b_panel, float beta, float* c,
                                    int64_t row_stride) {
  Sums sums;
  clear(sums);
  for (const RowRun* end = runs + count; runs != end; ++runs) {
    RowsAsTheyLie a;
    REPRISE_UNROLLED for (uint32_t i = 0; i < kRows; ++i) a.row[i] = runs->rows[i];
    for (uint32_t p = 0; p < runs->depths;) {
      if (runs->ahead != 0) {
        REPRISE_UNROLLED for (uint32_t i = 0; i < kRows; ++i) __builtin_prefetch(a.row[i] + p + runs->ahead, 0, 2);
      }
      const uint32_t line = runs->depths - p < kLinePairs ? runs->depths : p + kLinePairs;
      for (; p < line; ++p, b_panel += kColumns) add_depth(sums, a, p, b_panel);
    }
  }
  put(sums, beta, c, row_stride);
}

constexpr GemmTile kPairTile = {"avx512bf16-12x32", kRows, kColumns, false, run, run_rows, nullptr, 1, 2};

}  // namespace

const GemmTile* pair_tile(VectorLevel level) {
  if (level == VectorLevel::kAvx512Amx) return amx_pair_tile();
  return level == VectorLevel::kAvx512Bf16 ? &kPairTile : nullptr;
}

}  // namespace reprise
#else
namespace reprise {
const GemmTile* pair_tile(VectorLevel level) { return level == VectorLevel::kNeonBf16 ? neon_pair_tile() : nullptr; }
}  // namespace reprise
#endif
