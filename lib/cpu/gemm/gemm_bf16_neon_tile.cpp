// The register tile for panels of pairs of bf16, by BFMMLA (FEAT_BF16). The instruction multiplies
// a 2 x 4 matrix by a 4 x 2 matrix and sums in f32. Only this file needs the instruction; the loop
// nest treats the tile as any other.
//
// An operand of the instruction has 4 depths of two lines, so two pairs of a line are contiguous in
// a panel (group 2). A sum adds its two pairs in order, as two BFDOT would. Each product, the sum
// of a pair's products, and the sum with the old value are rounded to odd, without denormals. See
// Arm Architecture Reference Manual, BFMMLA, FPCR.EBF 0.
#include "lib/cpu/cpu_machine.h"

#if defined(__aarch64__) && !defined(REPRISE_BASELINE_ONLY) && \
    (!defined(__clang__) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC))
#include <arm_neon.h>

namespace reprise {
namespace {

#if defined(__clang__)
#define REPRISE_BF16_CODE  // clang 14 has the instruction only if the whole build has it
#else
#define REPRISE_BF16_CODE gnu::target("arch=armv8.2-a+bf16")
#endif
#define REPRISE_UNROLLED _Pragma("GCC unroll 16")

// A vector has 2 x 2 sums. 24 vectors of sums, 4 operands of B and 1 of A fit in 32 registers. The
// loops must unroll at any -O level.
constexpr uint32_t kRows = 12, kColumns = 8, kGroup = 2, kDown = kRows / 2, kAcross = kColumns / 2;
struct Sums {
  float32x4_t of[kDown][kAcross];
};

// Loads four depths of the two lines at `panel`. Copies bits, because memory contains pairs of bf16
// and no float.
[[REPRISE_BF16_CODE, gnu::always_inline]] inline bfloat16x8_t load(const float* panel) {
  return vreinterpretq_bf16_u8(vld1q_u8(reinterpret_cast<const uint8_t*>(panel)));
}

// Adds one group of depths. The empty instruction keeps g++ from loading all of A before the
// multiplications: there are too few registers for all of A.
[[REPRISE_BF16_CODE, gnu::always_inline]] inline void add_group(Sums& sums, const float* a_panel,
                                                                const float* b_panel) {
  bfloat16x8_t b[kAcross];
  REPRISE_UNROLLED for (uint32_t j = 0; j < kAcross; ++j) b[j] = load(b_panel + 2 * kGroup * j);
  REPRISE_UNROLLED for (uint32_t i = 0; i < kDown; ++i) {
    const bfloat16x8_t a = load(a_panel + 2 * kGroup * i);
    REPRISE_UNROLLED for (uint32_t j = 0; j < kAcross; ++j) sums.of[i][j] = vbfmmlaq_f32(sums.of[i][j], a, b[j]);
    asm volatile("" : : : "memory");
  }
}

[[REPRISE_BF16_CODE, gnu::always_inline]] inline void put_four(float* place, float beta, float32x4_t sum) {
  vst1q_f32(place, beta == 0.0f ? sum : vfmaq_n_f32(sum, vld1q_f32(place), beta));
}
[[REPRISE_BF16_CODE, gnu::always_inline]] inline void put(const Sums& sums, float beta, float* c, int64_t row_stride) {
  REPRISE_UNROLLED for (uint32_t i = 0; i < kDown; ++i, c += 2 * row_stride) {
    REPRISE_UNROLLED for (uint32_t j = 0; j < kAcross; j += 2) {
      const float32x4_t left = sums.of[i][j], right = sums.of[i][j + 1];
      put_four(c + 2 * j, beta, vcombine_f32(vget_low_f32(left), vget_low_f32(right)));
      put_four(c + row_stride + 2 * j, beta, vcombine_f32(vget_high_f32(left), vget_high_f32(right)));
    }
  }
}

// Computes a tile as GemmTile::run states. `k` must be a multiple of the group.
[[REPRISE_BF16_CODE]] void run_neon_pairs(const GemmTile&, uint64_t k, const float* a_panel, const float* b_panel,
                                          float beta, float* c, int64_t row_stride, int64_t) {
  Sums sums;
  REPRISE_UNROLLED for (uint32_t i = 0; i < kDown; ++i) {
    REPRISE_UNROLLED for (uint32_t j = 0; j < kAcross; ++j) sums.of[i][j] = vdupq_n_f32(0.0f);
  }
  for (const float* end = a_panel + k * kRows; a_panel != end;
       a_panel += kGroup * kRows, b_panel += kGroup * kColumns) {
    add_group(sums, a_panel, b_panel);
  }
  put(sums, beta, c, row_stride);
}

constexpr GemmTile kPairTile = {.name = "neonbf16-12x8",
                                .mr = kRows,
                                .nr = kColumns,
                                .prefers_columns = false,
                                .run = run_neon_pairs,
                                .run_rows = nullptr,
                                .run_depths = nullptr,
                                .depths_of_one = 2,
                                .group_of_a = kGroup,
                                .group_of_b = kGroup};

}  // namespace

const GemmTile* neon_pair_tile() { return &kPairTile; }

}  // namespace reprise
#else
namespace reprise {
const GemmTile* neon_pair_tile() { return nullptr; }
}  // namespace reprise
#endif
