// Attention's forward on tensor cores (attention_mma.h), after FlashAttention 2 (Dao 2023).
//
//   block  128 queries of one head, in four warps of 32; loops over tiles of 64 keys
//   warp   scores = q k^T ── largest, exponentials, sums in f32 ── weights in bf16 ── y
//
// Tiles of k and v alternate, k v k v ..., in three buffers of shared memory. Two tiles are copied
// while one is multiplied. A block uses 40 KiB of shared memory if D <= 64, else 80 KiB. Two blocks
// run on a multiprocessor.
#include <type_traits>

#include "cuda/attention/attention_mma.h"
#include "cuda/attention/attention_tiles.h"
#include "cuda/device_math.h"
#include "cuda/grid.h"

namespace reprise {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();

template <uint32_t kD>
struct ForwardShape {
  static constexpr uint32_t kDown = 2, kAcross = 8, kPlaces = 3;
  static constexpr uint32_t kOfWarp = 16 * kDown, kQueries = AttentionMma::kWarps * kOfWarp, kKeys = 8 * kAcross;
  static constexpr uint32_t kBlocks = 2;  // blocks that must fit on a multiprocessor
  using Queries = HeadTile<kD, kQueries>;
  using Keys = HeadTile<kD, kKeys, FoursAcross>;
  static constexpr uint32_t kSharedBytes = Queries::kBytes + kPlaces * Keys::kBytes;
};

// A warp's scores of a tile of keys; weigh() converts them to weights in place.
using Scores = WarpSums<2, 8>;

// The online softmax of this lane's rows (i, half). `largest` is a row's largest score so far;
// `sum` is this lane's part of the row's sum of exponentials relative to `largest`.
struct OnlineSoftmax {
  float largest[2][2] = {{kMinusInfinity, kMinusInfinity}, {kMinusInfinity, kMinusInfinity}};
  float sum[2][2] = {};

  // Updates `largest` with the scores, and copies its earlier values to `before`. Returns true in
  // all lanes if a value of any lane of the warp has changed.
  __device__ bool raise(const Scores& scores, float (&before)[2][2]) {
    bool grown = false;
    REPRISE_UNROLL
    for (uint32_t i = 0; i < 2; ++i) {
      REPRISE_UNROLL
      for (uint32_t half = 0; half < 2; ++half) {
        float& maximum = largest[i][half];
        before[i][half] = maximum;
        REPRISE_UNROLL
        for (uint32_t j = 0; j < 8; ++j) {
          maximum = larger_or_nan(maximum, larger_or_nan(scores.at[i][j][2 * half], scores.at[i][j][2 * half + 1]));
        }
        maximum = larger_or_nan(maximum, __shfl_xor_sync(kAllLanes, maximum, 1));
        maximum = larger_or_nan(maximum, __shfl_xor_sync(kAllLanes, maximum, 2));
        grown |= maximum != before[i][half];
      }
    }
    return __any_sync(kAllLanes, grown) != 0;
  }
  // Rescales the sum of row (i, half), which is relative to the earlier maximum `before`, to
  // `largest`. Returns the factor; 1 if `largest` has not grown. `log2_scale` converts scores to
  // base-2 exponents. If `largest` is +infinity or NaN, the factor is NaN, because WeightExponent
  // is unspecified then.
  __device__ float rescale(uint32_t i, uint32_t half, float before, float log2_scale) {
    const float by = shift(i, half, log2_scale);
    const float factor = by - by == 0 ? WeightExponent(log2_scale, by).weight(before) : by - by;
    sum[i][half] *= factor;
    return factor;
  }
  // Converts scores to weights relative to `largest`, and adds the weights to the sums.
  __device__ void weigh(Scores& scores, float log2_scale) {
    REPRISE_UNROLL
    for (uint32_t i = 0; i < 2; ++i) {
      REPRISE_UNROLL
      for (uint32_t half = 0; half < 2; ++half) {
        const WeightExponent exponent(log2_scale, shift(i, half, log2_scale));
        float row = 0;
        REPRISE_UNROLL
        for (uint32_t j = 0; j < 8; ++j) {
          REPRISE_UNROLL
          for (uint32_t e = 2 * half; e < 2 * half + 2; ++e) {
            scores.at[i][j][e] = exponent.weight(scores.at[i][j][e]);
            row += scores.at[i][j][e];
          }
        }
        sum[i][half] += row;
      }
    }
  }

 private:
  // Returns the value to subtract from exponents: `largest` as an exponent; 0 if `largest` is
  // -infinity because no key has been seen.
  __device__ float shift(uint32_t i, uint32_t half, float log2_scale) const {
    return largest[i][half] == kMinusInfinity ? 0.0f : largest[i][half] * log2_scale;
  }
};

// The queries of one warp, and the keys that they see.
struct WarpQueries {
  static constexpr uint32_t kCount = 32;
  uint32_t first;
  uint32_t end;                     // one past the last key that some query sees
  uint32_t last_start, common_end;  // all queries see the keys in [last_start, common_end)

  __device__ WarpQueries(const Head<Bf16>& head, uint32_t first_of_block, uint32_t end_of_block)
      : first(first_of_block + warp_index() * kCount) {
    end = end_of_warp_keys(head, first, kCount, end_of_block);
    last_start = first < head.T ? StartRange(head, first, kCount).last : 0;
    common_end = end_of_common_keys(head, first);
  }
  __device__ uint32_t t(uint32_t i, uint32_t half) const { return first + 16 * i + 8 * half + lane_index() / 4; }
  __device__ bool any_sees(uint32_t first_key) const { return first_key < end; }
  __device__ bool all_see(uint32_t first_key, uint32_t count) const {
    return first_key + count <= common_end && first_key >= last_start;
  }

  // Sets the scores of keys that a query does not see to -infinity.
  __device__ void hide(Scores& scores, const Head<Bf16>& head, uint32_t first_key) const {
    REPRISE_UNROLL
    for (uint32_t i = 0; i < 2; ++i) {
      uint32_t seen = 0;  // 4 bits for each half and each group of 16 keys
      REPRISE_ROLLED      // needs few registers, and only one copy of the code of seen_bits()
      for (uint32_t turn = 0; turn < 8; ++turn) {
        seen |= seen_bits(head, t(i, turn / 4), first_key + turn % 4 * 16 + lane_index() % 4 * 4) << 4 * turn;
      }
      REPRISE_UNROLL
      for (uint32_t bit = 0; bit < 32; ++bit) {
        if ((seen >> bit & 1) == 0) scores.at[i][bit % 16 / 2][bit / 16 * 2 + bit % 2] = kMinusInfinity;
      }
    }
  }
  // Zeroes the weights that dropout drops, among the 64 keys from first_key on. The factor of the
  // kept weights is applied to y at the end.
  __device__ void drop(LeftFragment<2> (&weights)[4], const WeightMask& mask, uint32_t first_key) const {
    uint64_t kept = 0;  // 4 bits for each (i, half) and each group of 16 keys
    REPRISE_ROLLED  // so that the code of Philox exists once
    for (uint32_t turn = 0; turn < 16; ++turn) {
      const uint64_t bits = mask.kept_bits(t(turn / 8, turn / 4 % 2), first_key + turn % 4 * 16 + lane_index() % 4 * 4);
      kept |= bits << 4 * turn;
    }
    REPRISE_UNROLL
    for (uint32_t turn = 0; turn < 16; ++turn)
      weights[turn % 4].keep(turn / 8, turn / 4 % 2, static_cast<uint32_t>(kept >> 4 * turn));
  }
};

template <uint32_t kD>
__global__ void __launch_bounds__(AttentionMma::kThreads, ForwardShape<kD>::kBlocks)
    attention_forward_mma(const AttentionForwardArgsOf<Bf16> args) {
  using Shape = ForwardShape<kD>;
  REPRISE_DYNAMIC_SHARED(shared, ForwardShape<kD>::kSharedBytes);
  REPRISE_SHARED(Head<Bf16>, head_of_block, 1);  // in shared memory, because registers are few
  const auto head = [&]() -> Head<Bf16> { return head_of_block[0]; };
  const uint32_t tiles = static_cast<uint32_t>(parts(args.T, Shape::kQueries)), heads = args.attention.heads;
  const uint32_t first_query = (tiles - 1 - blockIdx.x % tiles) * Shape::kQueries;  // blocks with most keys start first
  if (threadIdx.x == 0) head_of_block[0] = Head<Bf16>(args, blockIdx.x / tiles / heads, blockIdx.x / tiles % heads);
  __syncthreads();
  const uint32_t end = end_of_keys(head(), first_query, Shape::kQueries);  // one past the last key that the block sees
  const WarpQueries queries(head(), first_query, end);
  const uint32_t begin = StartRange(head(), first_query, Shape::kQueries).first / Shape::kKeys * Shape::kKeys;

  // `place` is the offset in shared memory of the tile to multiply next. Three offsets are used in
  // rotation. While this tile is multiplied, the next two tiles are copied to the other two
  // offsets.
  constexpr uint32_t kFirst = Shape::Queries::kBytes, kLast = Shape::kSharedBytes - Shape::Keys::kBytes;
  uint32_t place = kFirst;
  const auto copy = [&](uint32_t to, uint64_t of_head, uint32_t first_key) {
    if (first_key < end) Shape::Keys::copy(shared, to, head().rows(args.qkv, of_head, first_key));
    commit_copies();  // one group for each tile, because wait_copies() counts groups
  };
  const auto wait_and_copy = [&](uint64_t of_head, uint32_t first_key) {
    wait_copies<1>();
    // The tile at `place` is complete, and all warps have finished with the previous tile. The next
    // copies overwrite the previous tile.
    __syncthreads();
    copy(place == kFirst ? kLast : place - Shape::Keys::kBytes, of_head, first_key);
  };
  Shape::Queries::copy(shared, 0, head().rows(args.qkv, head().q, first_query));
  copy(kFirst, head().k, begin);
  copy(kFirst + Shape::Keys::kBytes, head().v, begin);

  const LanePlace<kD> rows_first = LanePlace<kD>::rows_first(), columns_first = LanePlace<kD>::columns_first();
  const float log2_scale = head().scale * kLog2E;
  OnlineSoftmax softmax;
  WarpSums<Shape::kDown, kD / 8> y;
  // Processes a tile of keys, and the tile of the values of the same positions. kPlain: all queries
  // of the warp see all keys of the tile, and there is no dropout.
  const auto take_tile = [&]<bool kPlain>(uint32_t first_key, std::bool_constant<kPlain>) {
    const bool sees = kPlain || queries.any_sees(first_key);
    LeftFragment<Shape::kDown> weights[Shape::kKeys / 16];
    wait_and_copy(head().k, first_key + Shape::kKeys);
    if (sees) {
      Scores scores;
      REPRISE_UNROLL
      for (uint32_t depth = 0; depth < kD; depth += 16) {
        LeftFragment<Shape::kDown> q;
        q.load(shared, rows_first, 0, warp_index() * Shape::kOfWarp, depth);
        scores.add_scores(q, shared, columns_first, place, 0, depth);
      }
      if (!kPlain && !queries.all_see(first_key, Shape::kKeys)) queries.hide(scores, head(), first_key);
      float before[2][2];
      if (softmax.raise(scores, before)) {  // rare after the first tiles
        REPRISE_UNROLL
        for (uint32_t i = 0; i < 2; ++i) {
          REPRISE_UNROLL
          for (uint32_t half = 0; half < 2; ++half)
            y.scale(i, half, softmax.rescale(i, half, before[i][half], log2_scale));
        }
      }
      softmax.weigh(scores, log2_scale);
      REPRISE_UNROLL
      for (uint32_t j = 0; j < Shape::kKeys / 16; ++j) weights[j] = scores.as_left(j);
      if (!kPlain && args.attention.dropout > 0) queries.drop(weights, WeightMask(args, head()), first_key);
    }
    place = place == kLast ? kFirst : place + Shape::Keys::kBytes;
    wait_and_copy(head().v, first_key + Shape::kKeys);
    if (sees) {
      REPRISE_UNROLL
      for (uint32_t j = 0; j < Shape::kKeys / 16; ++j) y.add_weighed(weights[j], shared, rows_first, place, 16 * j);
    }
    place = place == kLast ? kFirst : place + Shape::Keys::kBytes;
  };
  const uint32_t plain_end = args.attention.dropout > 0 ? 0 : end;
  uint32_t first_key = begin;
  while (first_key < end) {
    for (; first_key < plain_end && queries.all_see(first_key, Shape::kKeys); first_key += Shape::kKeys)
      take_tile(first_key, std::true_type());
    if (first_key >= end) break;
    take_tile(first_key, std::false_type());
    first_key += Shape::kKeys;
  }

  const float kept = kept_factor(args.attention.dropout);
  float largest_of_lane = 0, sum_of_lane = 1;  // the lane with lane % 4 == 2 i + half writes lse of row (i, half)
  REPRISE_UNROLL
  for (uint32_t i = 0; i < 2; ++i) {
    REPRISE_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      float sum = softmax.sum[i][half];
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      sum += __shfl_xor_sync(kAllLanes, sum, 2);
      if (lane_index() % 4 == 2 * i + half) largest_of_lane = softmax.largest[i][half], sum_of_lane = sum;
      const uint32_t t = queries.t(i, half);
      y.scale(i, half, kept / sum);
      if (t < args.T) y.store(i, half, args.y + head().y + uint64_t{t} * head().out, head().D);
    }
  }
  const uint32_t t = queries.t(lane_index() % 4 / 2, lane_index() % 2);
  if (t < args.T)
    args.lse[head().lse + t] = fmaf(largest_of_lane, head().scale, static_cast<float>(device_log(sum_of_lane)));
}

template <uint32_t kD>
void launch(const KernelContext& context, const AttentionForwardArgsOf<Bf16>& args) {
  const uint32_t tiles = static_cast<uint32_t>(parts(args.T, ForwardShape<kD>::kQueries));
  const dim3 grid = grid_of(uint64_t{tiles} * args.B * args.attention.heads);
  REPRISE_LAUNCH_DYNAMIC(attention_forward_mma<kD>, grid, AttentionMma::kThreads, ForwardShape<kD>::kSharedBytes,
                         context.queue, args);
}

}  // namespace

void launch_attention_forward_mma(const KernelContext& context, const AttentionForwardArgsOf<Bf16>& args) {
  (args.C / args.attention.heads <= 64 ? launch<64> : launch<128>)(context, args);
}

}  // namespace reprise
