// Tiles of heads in shared memory, and the products with them by tensor cores: what attention's forward and backward on tensor cores share.
// Here apart from tile_mma.h because attention's sums stay in a warp: each warp owns whole rows of a tile of scores, so that softmax needs no
// other warp, and the scores of one product are the left operand of the next without leaving the registers.
//
// A tile has rows of kD columns, D rounded up to 64 or 128: zeros from D on, and beyond the sequence. Chunk c, of 16 bytes, of row r stands
// at c ^ (r % 8): the eight rows that ldmatrix reads at once then have all banks.
#pragma once

#include <bit>

#include "cuda/attention_heads.h"
#include "cuda/pack.h"
#include "cuda/warp.h"

namespace reprise {

struct AttentionMma {
  static constexpr uint32_t kThreads = 128, kWarps = kThreads / kWarpLanes;
};
constexpr float kLog2E = 0x1.715476p+0f;

// ---- tiles ----

// Which position a row of a tile holds. A lane has sums of rows g and g + 8 and of columns 2 t and 2 t + 1 of every 16 x 8, with g = lane / 4
// and t = lane % 4: rows in another order than positions give it neighbouring positions, whose dropout is drawn at once.
struct InOrder {
  static constexpr uint32_t kPeriod = 8;  // of so many rows the order is that of the first so many
  __device__ static uint32_t position(uint32_t row) { return row; }
};
// Where the rows are columns of the scores: a lane has positions 4 t to 4 t + 3 of every 16.
struct FoursAcross {
  static constexpr uint32_t kPeriod = 16;
  __device__ static uint32_t position(uint32_t row) { return row / 16 * 16 + row % 8 / 2 * 4 + row / 8 % 2 * 2 + row % 2; }
};
// Where they are rows of the scores, 16 kDown for a warp: a lane has positions 2 kDown g to 2 kDown g + 2 kDown - 1 of its warp's.
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

  // Begins this thread's copies of the rows of some positions.
  __device__ static void copy(const SharedBytes& shared, uint32_t tile, const HeadRows<Bf16>& rows) {
    constexpr uint32_t kAtOnce = AttentionMma::kThreads / kChunks, kRound = kAtOnce > Order::kPeriod ? kAtOnce : Order::kPeriod;
    static_assert(kAtOnce % 8 == 0 && kRows % kRound == 0);
    const uint32_t chunk = threadIdx.x % kChunks, first = threadIdx.x / kChunks, count = 8 * chunk < rows.D ? rows.count : 0;
    const uint32_t to = tile + first * kRowBytes + 16 * (chunk ^ first % 8);
    uint32_t position = Order::position(first);
    const Bf16* source = rows.x + 8 * chunk + uint64_t{position} * rows.stride;
    REPRISE_ROLLED  // the addresses of all rounds at once would spill
    for (uint32_t round = 0; round < kRows; round += kRound) {
      REPRISE_UNROLL
      for (uint32_t turn = 0; turn < kRound; turn += kAtOnce) {
        const uint32_t further = Order::position(turn);  // position(first + turn) is the sum: turns do not touch what bits first has
        copy_async<16>(shared, to + (round + turn) * kRowBytes, source + uint64_t{further} * rows.stride, position + further < count ? 16 : 0);
      }
      position += kRound, source += uint64_t{kRound} * rows.stride;
    }
  }
};

// Where the row begins that a lane names to ldmatrix, of 16 rows and 16 columns: both multiples of 16.
template <uint32_t kD>
class LanePlace {
 public:
  // Rows 0-7 and 8-15 of the first eight columns, then of the others: mma's a. With .trans two of mma's b, whose depth are the rows.
  __device__ static LanePlace rows_first() { return LanePlace(lane_index() % 16, lane_index() / 16); }
  // The first eight columns and the others of rows 0-7, then of rows 8-15: two of mma's b, whose depth are the columns.
  __device__ static LanePlace columns_first() { return LanePlace(lane_index() / 16 * 8 + lane_index() % 8, lane_index() / 8 % 2); }

  __device__ uint32_t at(uint32_t tile, uint32_t row, uint32_t column) const { return tile + 2 * kD * row + row_ + (2 * column ^ chunk_); }

 private:
  __device__ LanePlace(uint32_t row, uint32_t chunk) : row_(2 * kD * row), chunk_(16 * (chunk ^ row % 8)) {}
  uint32_t row_, chunk_;
};

// ---- products ----

// 16 kDown rows and 16 columns, mma's a for each 16 rows.
template <uint32_t kDown>
struct LeftFragment {
  uint32_t at[kDown][4];

  template <uint32_t kD>
  __device__ void load(const SharedBytes& shared, const LanePlace<kD>& rows_first, uint32_t tile, uint32_t row, uint32_t column) {
    REPRISE_UNROLL
    for (uint32_t i = 0; i < kDown; ++i) load_matrices(at[i], shared, rows_first.at(tile, row + 16 * i, column));
  }
  // Of columns in FoursAcross, of row (i, half): bit n of `kept` says whether this lane's nth is kept; else it becomes 0.
  __device__ void keep(uint32_t i, uint32_t half, uint32_t kept) {
    REPRISE_UNROLL
    for (uint32_t n = 0; n < 4; ++n) {
      if ((kept >> n & 1) == 0) at[i][n / 2 * 2 + half] &= n % 2 == 0 ? 0xffff0000u : 0x0000ffffu;
    }
  }
};
// The same of all columns.
template <uint32_t kDown, uint32_t kD>
struct LeftRows {
  LeftFragment<kDown> at[kD / 16];

  __device__ void load(const SharedBytes& shared, uint32_t tile, uint32_t row) {
    const LanePlace<kD> place = LanePlace<kD>::rows_first();
    REPRISE_UNROLL
    for (uint32_t depth = 0; depth < kD; depth += 16) at[depth / 16].load(shared, place, tile, row, depth);
  }
};

// A warp's 16 kDown rows by 8 kAcross columns of sums, as mma's c.
template <uint32_t kDown, uint32_t kAcross>
struct WarpSums {
  float at[kDown][kAcross][4] = {};

  // += left[rows][16] right[columns][16]^T: of 16 columns of a tile whose rows from `row` on are columns here.
  template <uint32_t kD>
  __device__ void add_scores(const LeftFragment<kDown>& left, const SharedBytes& shared, const LanePlace<kD>& columns_first, uint32_t tile,
                             uint32_t row, uint32_t depth) {
    REPRISE_UNROLL
    for (uint32_t j = 0; j < kAcross / 2; ++j) {
      uint32_t r[4];
      load_matrices(r, shared, columns_first.at(tile, row + 16 * j, depth));
      multiply_add_pair(left, 2 * j, r);
    }
  }
  // += weights[rows][16] right[16][columns]: of 16 rows of a tile.
  template <uint32_t kD>
  __device__ void add_weighed(const LeftFragment<kDown>& weights, const SharedBytes& shared, const LanePlace<kD>& rows_first, uint32_t tile,
                              uint32_t row) {
    static_assert(8 * kAcross == kD);
    REPRISE_UNROLL
    for (uint32_t j = 0; j < kAcross / 2; ++j) {
      uint32_t r[4];
      load_matrices_transposed(r, shared, rows_first.at(tile, row, 16 * j));
      multiply_add_pair(weights, 2 * j, r);
    }
  }
  // Columns 16 j to 16 j + 15, rounded to bf16.
  __device__ LeftFragment<kDown> as_left(uint32_t j) const {
    LeftFragment<kDown> left;
    REPRISE_UNROLL
    for (uint32_t i = 0; i < kDown; ++i) {
      REPRISE_UNROLL
      for (uint32_t r = 0; r < 4; ++r) left.at[i][r] = round_to_bf16_pair(at[i][2 * j + r / 2][r % 2 * 2], at[i][2 * j + r / 2][r % 2 * 2 + 1]);
    }
    return left;
  }
  __device__ void scale(uint32_t i, uint32_t half, float factor) {
    REPRISE_UNROLL
    for (uint32_t j = 0; j < kAcross; ++j) at[i][j][2 * half] *= factor, at[i][j][2 * half + 1] *= factor;
  }
  // Row (i, half) of this lane: D columns, D a multiple of 8.
  __device__ void store(uint32_t i, uint32_t half, Bf16* to, uint32_t D) const {
    REPRISE_UNROLL
    for (uint32_t j = 0; j < kAcross; ++j) {
      if (8 * j >= D) break;
      *reinterpret_cast<Words<uint32_t, 1>*>(to + 8 * j + lane_index() % 4 * 2) = {{round_to_bf16_pair(at[i][j][2 * half], at[i][j][2 * half + 1])}};
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

// What makes a weight of a score: 2^(score log2_scale - by), where that exponent is at most about 0. The weight is within 2^-18 of itself; from
// 2^-126 on downwards it is at most 2^-126, and 0 from 2^-127 on. Of a score that is NaN nothing is promised.
//
// u = (1 - exponent) / 128 is taken first, which fma keeps within [0, 1]; so no other instruction has to. With N the integer nearest to 128 u
// the weight is 2^(1 - N), by the exponent's bits, times 2^(N - 128 u), by a polynomial that is 1 where N = 128 u (its relative error is the
// least of its degree). Here beside device_exp because half its instructions are worth half the forward's time where D = 64.
class WeightExponent {
 public:
  WeightExponent() = default;
  __device__ WeightExponent(float log2_scale, float by)
      : factor_(log2_scale * (-1.0f / 128)), shift_(fmaf(by, 1.0f / 128, 1.0f / 128)) {}

  __device__ float weight(float score) const {
    constexpr float kRound = 0x1.8p16f + 1.0f / 128;  // less u, it has 1 - N in the low bits of its significand
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
  static constexpr float kFirst = -128 * 0.69312433f, kSecond = 128 * 128 * 0.24024145f, kThird = -128 * 128 * 128 * 0.05590597f,
                         kFourth = 128.0f * 128 * 128 * 128 * 0.00958105f;
  float factor_, shift_;
};

}  // namespace reprise
