// Tiles of heads in shared memory, and tensor-core products of them. Shared by attention's forward
// and backward on tensor cores. These products do not use tile_mma.h, because attention's sums stay
// in a warp. Each warp has whole rows of a tile of scores, so softmax needs no other warp. The
// scores that one product computes are the left operand of the next product and stay in registers.
//
// A tile has rows of kD columns: D rounded up to 64 or 128. Columns from D on are zero, and so are
// rows beyond the sequence. Chunk c (16 bytes) of row r is stored at c ^ (r % 8), so that the eight
// rows that ldmatrix reads at once use all banks.
#pragma once

#include <bit>

#include "cuda/attention/attention_heads.h"
#include "cuda/gemm/pack.h"
#include "cuda/warp.h"

namespace reprise {

struct AttentionMma {
  static constexpr uint32_t kThreads = 128, kWarps = kThreads / kWarpLanes;
};
constexpr float kLog2E = 0x1.715476p+0f;

// ---- tiles ----

// An order maps the rows of a tile to positions of the sequence. InOrder maps row r to position r.
// In each 16 x 8 block of sums, a lane has rows g and g + 8 and columns 2 t and 2 t + 1. Here g is
// the lane's index / 4, and t is the remainder. The other orders below give a lane neighbouring
// positions, whose dropout bits can be drawn together.
struct InOrder {
  static constexpr uint32_t kPeriod = 8;  // position(row + kPeriod) is position(row) + kPeriod
  __device__ static uint32_t position(uint32_t row) { return row; }
};
// The order for tiles whose rows are columns of the scores: a lane has positions 4 t to 4 t + 3 of
// every 16.
struct FoursAcross {
  static constexpr uint32_t kPeriod = 16;
  __device__ static uint32_t position(uint32_t row) {
    return row / 16 * 16 + row % 8 / 2 * 4 + row / 8 % 2 * 2 + row % 2;
  }
};
// The order for tiles whose rows are rows of the scores, 16 kDown for each warp: a lane has
// positions 2 kDown g to 2 kDown g + 2 kDown - 1 of the warp's positions.
template <uint32_t kDown>
struct NeighboursDown {
  static constexpr uint32_t kPeriod = 16 * kDown;
  __device__ static uint32_t position(uint32_t row) {
    return row / kPeriod * kPeriod + row % 8 * 2 * kDown + row % kPeriod / 16 * 2 + row / 8 % 2;
  }
};

template <uint32_t kD, uint32_t kRows, typename Order = InOrder>
struct HeadTile {
  static constexpr uint32_t kChunks = kD / 8, kRowBytes = 2 * kD, kBytes = kRows * kRowBytes;

  // Begins this thread's copies of `rows` to the tile at offset `tile` of shared memory.
  __device__ static void copy(const SharedBytes& shared, uint32_t tile, const HeadRows<Bf16>& rows) {
    constexpr uint32_t kAtOnce = AttentionMma::kThreads / kChunks,
                       kRound = kAtOnce > Order::kPeriod ? kAtOnce : Order::kPeriod;
    static_assert(kAtOnce % 8 == 0 && kRows % kRound == 0);
    const uint32_t chunk = threadIdx.x % kChunks, first = threadIdx.x / kChunks,
                   count = 8 * chunk < rows.D ? rows.count : 0;
    const uint32_t to = tile + first * kRowBytes + 16 * (chunk ^ first % 8);
    uint32_t position = Order::position(first);
    const Bf16* source = rows.x + 8 * chunk + uint64_t{position} * rows.stride;
    REPRISE_ROLLED  // if unrolled, the addresses of all rounds would spill
    for (uint32_t round = 0; round < kRows; round += kRound) {
      REPRISE_UNROLL
      for (uint32_t turn = 0; turn < kRound; turn += kAtOnce) {
        // position(first + turn) == position(first) + position(turn), because `first` and `turn`
        // have no bits in common.
        const uint32_t further = Order::position(turn);
        copy_async<16>(shared, to + (round + turn) * kRowBytes, source + uint64_t{further} * rows.stride,
                       position + further < count ? 16 : 0);
      }
      position += kRound, source += uint64_t{kRound} * rows.stride;
    }
  }
};

// Computes the address that this lane passes to ldmatrix to load 16 rows by 16 columns of a tile.
// The rows and the columns begin at multiples of 16.
template <uint32_t kD>
class LanePlace {
 public:
  // Returns the addresses for operand a of mma: rows 0-7 and 8-15 of the first eight columns, then
  // of the last eight. With .trans, ldmatrix loads two operands b from these addresses, with the
  // rows as depth.
  __device__ static LanePlace rows_first() { return LanePlace(lane_index() % 16, lane_index() / 16); }
  // Returns the addresses for two operands b of mma, with the columns as depth: the first and the
  // last eight columns of rows 0-7, then of rows 8-15.
  __device__ static LanePlace columns_first() {
    return LanePlace(lane_index() / 16 * 8 + lane_index() % 8, lane_index() / 8 % 2);
  }

  __device__ uint32_t at(uint32_t tile, uint32_t row, uint32_t column) const {
    return tile + 2 * kD * row + row_ + (2 * column ^ chunk_);
  }

 private:
  __device__ LanePlace(uint32_t row, uint32_t chunk) : row_(2 * kD * row), chunk_(16 * (chunk ^ row % 8)) {}
  uint32_t row_, chunk_;
};

// ---- products ----

// A left operand of 16 kDown rows by 16 columns: an operand a of mma for each 16 rows.
template <uint32_t kDown>
struct LeftFragment {
  uint32_t at[kDown][4];

  template <uint32_t kD>
  __device__ void load(const SharedBytes& shared, const LanePlace<kD>& rows_first, uint32_t tile, uint32_t row,
                       uint32_t column) {
    REPRISE_UNROLL
    for (uint32_t i = 0; i < kDown; ++i) load_matrices(at[i], shared, rows_first.at(tile, row + 16 * i, column));
  }
  // Zeroes the elements of row (i, half) that dropout drops. This lane's nth column is kept if bit
  // n of `kept` is set. The columns must be in the order FoursAcross.
  __device__ void keep(uint32_t i, uint32_t half, uint32_t kept) {
    REPRISE_UNROLL
    for (uint32_t n = 0; n < 4; ++n) {
      if ((kept >> n & 1) == 0) at[i][n / 2 * 2 + half] &= n % 2 == 0 ? 0xffff0000u : 0x0000ffffu;
    }
  }
};
// A left operand of 16 kDown rows by all kD columns.
template <uint32_t kDown, uint32_t kD>
struct LeftRows {
  LeftFragment<kDown> at[kD / 16];

  __device__ void load(const SharedBytes& shared, uint32_t tile, uint32_t row) {
    const LanePlace<kD> place = LanePlace<kD>::rows_first();
    REPRISE_UNROLL
    for (uint32_t depth = 0; depth < kD; depth += 16) at[depth / 16].load(shared, place, tile, row, depth);
  }
};

// A warp's sums, 16 kDown rows by 8 kAcross columns, in the layout of mma's operand c.
template <uint32_t kDown, uint32_t kAcross>
struct WarpSums {
  float at[kDown][kAcross][4] = {};

  // Adds left[rows][16] * right[columns][16]^T. `right` is 16 columns of a tile, from `depth` on.
  // The tile's rows, from `row` on, are the columns of the sums.
  template <uint32_t kD>
  __device__ void add_scores(const LeftFragment<kDown>& left, const SharedBytes& shared,
                             const LanePlace<kD>& columns_first, uint32_t tile, uint32_t row, uint32_t depth) {
    REPRISE_UNROLL
    for (uint32_t j = 0; j < kAcross / 2; ++j) {
      uint32_t r[4];
      load_matrices(r, shared, columns_first.at(tile, row + 16 * j, depth));
      multiply_add_pair(left, 2 * j, r);
    }
  }
  // Adds weights[rows][16] * right[16][columns]. `right` is 16 rows of a tile, from `row` on.
  template <uint32_t kD>
  __device__ void add_weighed(const LeftFragment<kDown>& weights, const SharedBytes& shared,
                              const LanePlace<kD>& rows_first, uint32_t tile, uint32_t row) {
    static_assert(8 * kAcross == kD);
    REPRISE_UNROLL
    for (uint32_t j = 0; j < kAcross / 2; ++j) {
      uint32_t r[4];
      load_matrices_transposed(r, shared, rows_first.at(tile, row, 16 * j));
      multiply_add_pair(weights, 2 * j, r);
    }
  }
  // Returns columns 16 j to 16 j + 15, rounded to bf16, as a left operand.
  __device__ LeftFragment<kDown> as_left(uint32_t j) const {
    LeftFragment<kDown> left;
    REPRISE_UNROLL
    for (uint32_t i = 0; i < kDown; ++i) {
      REPRISE_UNROLL
      for (uint32_t r = 0; r < 4; ++r)
        left.at[i][r] = round_to_bf16_pair(at[i][2 * j + r / 2][r % 2 * 2], at[i][2 * j + r / 2][r % 2 * 2 + 1]);
    }
    return left;
  }
  __device__ void scale(uint32_t i, uint32_t half, float factor) {
    REPRISE_UNROLL
    for (uint32_t j = 0; j < kAcross; ++j) at[i][j][2 * half] *= factor, at[i][j][2 * half + 1] *= factor;
  }
  // Stores this lane's part of row (i, half), which has D columns; D is a multiple of 8.
  __device__ void store(uint32_t i, uint32_t half, Bf16* to, uint32_t D) const {
    REPRISE_UNROLL
    for (uint32_t j = 0; j < kAcross; ++j) {
      if (8 * j >= D) break;
      *reinterpret_cast<Words<uint32_t, 1>*>(to + 8 * j + lane_index() % 4 * 2) = {
          {round_to_bf16_pair(at[i][j][2 * half], at[i][j][2 * half + 1])}};
    }
  }

 private:
  __device__ void multiply_add_pair(const LeftFragment<kDown>& left, uint32_t j, const uint32_t (&r)[4]) {
    const uint32_t right[2][2] = {{r[0], r[1]}, {r[2], r[3]}};
    REPRISE_UNROLL
    for (uint32_t i = 0; i < kDown; ++i) {
      multiply_add_bf16(at[i][j], left.at[i], right[0]);
      multiply_add_bf16(at[i][j + 1], left.at[i], right[1]);
    }
  }
};

// ---- weights ----

// Maps a score to its weight 2^(score * log2_scale - by). The exponent must be at most about 0. The
// relative error is at most 2^-18. A weight of 2^-126 or less becomes at most 2^-126; a weight of
// 2^-127 or less becomes 0. The weight of a NaN is unspecified.
//
// First, one fma computes u = (1 - exponent) / 128 and limits u to [0, 1], without another
// instruction. Let N be the integer nearest to 128 u. The weight is 2^(1 - N), set by the
// exponent's bits, times a polynomial for 2^(N - 128 u). The polynomial is 1 if N = 128 u, and has
// the minimum relative error of its degree. The class exists in addition to device_exp because it
// uses half as many instructions. Exponentials are half of the forward's time if D = 64.
class WeightExponent {
 public:
  WeightExponent() = default;
  __device__ WeightExponent(float log2_scale, float by)
      : factor_(log2_scale * (-1.0f / 128)), shift_(fmaf(by, 1.0f / 128, 1.0f / 128)) {}

  __device__ float weight(float score) const {
    constexpr float kRound = 0x1.8p16f + 1.0f / 128;  // kRound - u has 1 - N in the low bits of its significand
    const float u = fma_within_unit(score, factor_, shift_);
    const float rounded = kRound - u;
    const float rest = u + (rounded - kRound);  // u - N / 128
    float p = kFourth;
    p = fmaf(p, rest, kThird);
    p = fmaf(p, rest, kSecond);
    p = fmaf(p, rest, kFirst);
    p = fmaf(p, rest, 1.0f);
    return std::bit_cast<float>(std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(rounded) << 23));
  }

 private:
  static constexpr float kFirst = -128 * 0.69312433f, kSecond = 128 * 128 * 0.24024145f,
                         kThird = -128 * 128 * 128 * 0.05590597f, kFourth = 128.0f * 128 * 128 * 128 * 0.00958105f;
  float factor_, shift_;
};

}  // namespace reprise
