// The 32 x 32 tile for panels of bf16 pairs by AMX. It is a template over the few instructions that
// it needs, so that tests can emulate them on processors without AMX (tests/ops/emulated_amx.h).
//
// There are 8 tile registers of 16 rows of 64 bytes. Four hold sums, two hold a group of A, and two
// hold a group of B:
//
//                B of 16 pairs:   tmm6   tmm7       A: 16 pairs of a line are contiguous
//   A of 16 pairs:   tmm4         tmm0   tmm1          (group 16): a row of 64 bytes a line
//                    tmm5         tmm2   tmm3       B: 32 pairs of a depth are contiguous:
//                                                      two rows of 64 bytes for each depth
//
// TDPBF16PS sums the products of the first members of the 16 pairs, and those of the second
// members, each by fused multiply-adds in f32. It then adds both sums to each other, and the result
// to the old value. Denormals are zero, rounding is to nearest even, MXCSR is not used (Intel 64
// and IA-32 Architectures Software Developer's Manual, volume 2, TDPBF16PS).
#pragma once

#include "lib/cpu/gemm/gemm_tile.h"

namespace reprise {

// The operand of LDTILECFG (Intel's manual, volume 1, chapter 18.3): all tile registers have their
// full size.
struct alignas(64) AmxConfiguration {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
inline constexpr AmxConfiguration kAmxConfiguration;

// The tile over an instruction set `Amx`, which provides configure(configuration), release(),
// clear<tile>(), load<tile>(from, row_bytes), store<tile>(to, row_bytes) and multiply<sum, a, b>().
template <typename Amx>
struct AmxPairTile {
  static constexpr uint32_t kSide = 16, kRows = 2 * kSide, kColumns = 2 * kSide, kGroup = 16;
  static constexpr int64_t kFloat = sizeof(float);

  // Sets up the tile registers for a worker's task. leave() returns them to their initial state.
  static void enter() { Amx::configure(kAmxConfiguration); }
  static void leave() { Amx::release(); }

  // Computes a tile as GemmTile::run states. `k` must be a multiple of the group.
  static void run(const GemmTile&, uint64_t k, const float* a, const float* b, float beta, float* c, int64_t row_stride,
                  int64_t) {
    multiply(k, {a, kGroup, kGroup * kRows}, b, beta, c, row_stride);
  }
  static void run_lines(uint64_t k, const float* a, int64_t a_step, const float* b, float beta, float* c,
                        int64_t row_stride) {
    multiply(k, {a, a_step, kGroup}, b, beta, c, row_stride);
  }

  static constexpr GemmTile tile() {
    return {.name = "amxbf16-32x32",
            .mr = kRows,
            .nr = kColumns,
            .prefers_columns = false,
            .run = run,
            .run_rows = nullptr,
            .run_depths = nullptr,
            .depths_of_one = 2,
            .group_of_a = kGroup,
            .run_lines = run_lines,
            .enter = enter,
            .leave = leave};
  }

 private:
  // An operand A: successive lines are `step` floats apart, and the groups of a line `next` floats
  // apart.
  struct Lines {
    const float* data;
    int64_t step, next;
  };
  static void multiply(uint64_t k, Lines a, const float* b, float beta, float* c, int64_t row_stride) {
    const int64_t row_bytes = row_stride * kFloat;
    float* below = c + kSide * row_stride;
    start(beta, c, row_stride);
    for (uint64_t p = 0; p < k; p += kGroup, a.data += a.next, b += kGroup * kColumns) {
      Amx::template load<4>(a.data, a.step * kFloat);
      Amx::template load<6>(b, kColumns * kFloat);
      Amx::template multiply<0, 4, 6>();
      Amx::template load<7>(b + kSide, kColumns * kFloat);
      Amx::template multiply<1, 4, 7>();
      Amx::template load<5>(a.data + kSide * a.step, a.step * kFloat);
      Amx::template multiply<2, 5, 6>();
      Amx::template multiply<3, 5, 7>();
    }
    Amx::template store<0>(c, row_bytes);
    Amx::template store<1>(c + kSide, row_bytes);
    Amx::template store<2>(below, row_bytes);
    Amx::template store<3>(below + kSide, row_bytes);
  }

  // Sets the sums to beta * c.
  static void start(float beta, float* c, int64_t row_stride) {
    if (beta == 0.0f) {
      Amx::template clear<0>();
      Amx::template clear<1>();
      Amx::template clear<2>();
      Amx::template clear<3>();
      return;
    }
    for (uint32_t i = 0; beta != 1.0f && i < kRows; ++i) {
      for (uint32_t j = 0; j < kColumns; ++j) c[i * row_stride + j] *= beta;
    }
    const int64_t row_bytes = row_stride * kFloat;
    const float* below = c + kSide * row_stride;
    Amx::template load<0>(c, row_bytes);
    Amx::template load<1>(c + kSide, row_bytes);
    Amx::template load<2>(below, row_bytes);
    Amx::template load<3>(below + kSide, row_bytes);
  }
};

}  // namespace reprise
