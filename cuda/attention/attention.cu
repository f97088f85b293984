// Attention in f32, in tiles of 32 queries by 32 keys. The forward uses an online softmax. The
// backward uses the log-sums that the forward saved. Heads of bf16 that fit tensor cores run in the
// kernels of attention_mma.h. This file is the counterpart of lib/cpu/attention/attention.cpp.
// Neither file stores a T x T matrix (Rabe & Staats 2021; Dao 2023, "FlashAttention-2").
//
//   forward   a block has a tile of queries of one head and loops over the tiles of keys that the
//             queries see
//   dq        the same loop
//   dk, dv    a block has a tile of keys of one shared head and loops over the tiles of queries
//             that see the keys, for each query head of the group
//
// One thread computes each sum, in the order of the loop, so no result depends on the launch.
// Tiles of scores pass through shared memory. Shared memory contains only a slab of 32 columns of
// q, k, v or dy at a time, so its size does not grow with the head.
#include "cuda/attention/attention_heads.h"
#include "cuda/attention/attention_mma.h"
#include "cuda/attention/attention_rules.h"
#include "cuda/device_math.h"
#include "cuda/gemm/pack.h"
#include "cuda/grid.h"

namespace reprise {
namespace {

constexpr uint32_t kTile = 32;          // queries or keys of a tile, and columns of a slab
constexpr uint32_t kTilePacks = kTile / 4;
constexpr uint32_t kPitch = kTilePacks + 1;  // packs of a row in shared memory; one is padding, to use all banks
constexpr uint32_t kSlabPacks = kTile * kPitch;
constexpr uint32_t kThreads = kTilePacks * kTilePacks;  // each thread has 4 x 4 elements of a tile
constexpr float kMinusInfinity = -__builtin_inff();

using SharedPack = Words<float, 4>;

// Return the thread's coordinates in a tile, in units of 4 rows and 4 columns. The thread has rows
// 4 * down() + i and columns 4 * across() + j, with i and j < 4. Eight neighbouring lanes have the
// same rows.
__device__ inline uint32_t down() { return threadIdx.x / kTilePacks; }
__device__ inline uint32_t across() { return threadIdx.x % kTilePacks; }

struct Square {
  float at[4][4] = {};
};

// ---- between memory, shared memory and registers ----

// Copies a slab of `rows` to shared[column][row]. The slab is the kTile columns from first_column
// on. Elements outside of `rows` become 0.
template <typename Shared, typename Stored>
__device__ void stage_by_column(Shared& shared, const HeadRows<Stored>& rows, uint32_t first_column) {
  REPRISE_ROLLED  // if unrolled, the addresses of all iterations would spill
  for (uint32_t turn = 0; turn < kTile * kTilePacks / kThreads; ++turn) {
    const uint32_t flat = threadIdx.x + turn * kThreads, column = flat % kTile, row = flat / kTile * 4;
    SharedPack pack;
    REPRISE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      const bool inside = row + i < rows.count && first_column + column < rows.D;
      pack.at[i] = inside ? float{rows.x[uint64_t{row + i} * rows.stride + first_column + column]} : 0.0f;
    }
    shared[column * kPitch + flat / kTile] = pack;
  }
}
// Copies a slab, as stage_by_column() does, but to shared[row][column].
template <typename Shared, typename Stored>
__device__ void stage_by_row(Shared& shared, const HeadRows<Stored>& rows, uint32_t first_column) {
  REPRISE_ROLLED  // if unrolled, the addresses of all iterations would spill
  for (uint32_t turn = 0; turn < kTile * kTilePacks / kThreads; ++turn) {
    const uint32_t flat = threadIdx.x + turn * kThreads, row = flat / kTilePacks,
                   column = first_column + flat % kTilePacks * 4;
    SharedPack pack;
    REPRISE_UNROLL
    for (uint32_t j = 0; j < 4; ++j) {
      const bool inside = row < rows.count && column + j < rows.D;
      pack.at[j] = inside ? float{rows.x[uint64_t{row} * rows.stride + column + j]} : 0.0f;
    }
    shared[row * kPitch + flat % kTilePacks] = pack;
  }
}

// Stores a tile of scores in shared memory as [row][column]; store_by_column() stores the tile as
// [column][row].
template <typename Shared>
__device__ void store_by_row(Shared& shared, const Square& tile) {
  REPRISE_UNROLL
  for (uint32_t i = 0; i < 4; ++i) {
    shared[(4 * down() + i) * kPitch + across()] =
        SharedPack{{tile.at[i][0], tile.at[i][1], tile.at[i][2], tile.at[i][3]}};
  }
}
template <typename Shared>
__device__ void store_by_column(Shared& shared, const Square& tile) {
  REPRISE_UNROLL
  for (uint32_t j = 0; j < 4; ++j) {
    shared[(4 * across() + j) * kPitch + down()] =
        SharedPack{{tile.at[0][j], tile.at[1][j], tile.at[2][j], tile.at[3][j]}};
  }
}

// Adds left[depth][i] * right[depth][j] to sum[i][j], for each depth of a slab.
template <typename Shared>
__device__ void multiply_add(Square& sum, Shared& left, Shared& right) {
  REPRISE_UNROLL_BY_FOUR
  for (uint32_t depth = 0; depth < kTile; ++depth) {
    const SharedPack a = left[depth * kPitch + down()], b = right[depth * kPitch + across()];
    REPRISE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      REPRISE_UNROLL
      for (uint32_t j = 0; j < 4; ++j) sum.at[i][j] = fmaf(a.at[i], b.at[j], sum.at[i][j]);
    }
  }
}

// Returns a tile of the product a b^T, summed over all columns. `left` and `right` are buffers in
// shared memory.
template <typename Shared, typename Stored>
__device__ Square multiply_rows(Shared& left, Shared& right, const HeadRows<Stored>& a, const HeadRows<Stored>& b) {
  Square sum;
  for (uint32_t column = 0; column < a.D; column += kTile) {
    stage_by_column(left, a, column);
    stage_by_column(right, b, column);
    __syncthreads();
    multiply_add(sum, left, right);
    __syncthreads();
  }
  return sum;
}

// Sums of a block: 32 rows of up to kSlabs * 32 columns, distributed over the threads' registers.
template <uint32_t kSlabs>
struct TileRows {
  Square slabs[kSlabs];

  // Adds the product of `weights` and b. `weights` is in shared memory as [row of b][row of sums].
  template <typename Shared, typename Stored>
  __device__ void add_weighed(Shared& weights, Shared& right, const HeadRows<Stored>& b) {
    REPRISE_UNROLL
    for (uint32_t slab = 0; slab < kSlabs; ++slab) {
      if (slab * kTile >= b.D) break;
      stage_by_row(right, b, slab * kTile);
      __syncthreads();
      multiply_add(slabs[slab], weights, right);
      __syncthreads();
    }
  }
  __device__ void scale(const float (&factors)[4]) {
    REPRISE_UNROLL
    for (uint32_t slab = 0; slab < kSlabs; ++slab) {
      REPRISE_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        REPRISE_UNROLL
        for (uint32_t j = 0; j < 4; ++j) slabs[slab].at[i][j] *= factors[i];
      }
    }
  }
  template <typename Stored>
  __device__ void store(Stored* to, uint64_t stride, uint32_t count, uint32_t D) const {
    REPRISE_UNROLL
    for (uint32_t slab = 0; slab < kSlabs; ++slab) {
      REPRISE_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        REPRISE_UNROLL
        for (uint32_t j = 0; j < 4; ++j) {
          const uint32_t row = 4 * down() + i, column = slab * kTile + 4 * across() + j;
          if (row < count && column < D) to[row * stride + column] = slabs[slab].at[i][j];
        }
      }
    }
  }
};

// ---- queries ----

// Returns the first of this thread's four queries.
__device__ inline uint32_t query_of(uint32_t first_query) { return first_query + 4 * down(); }

// Returns 16 bits: bit 4 i + j is set if the thread's query i sees key s + j. A rolled loop
// computes the bits, to use few registers.
template <typename Stored>
__device__ uint32_t seen_by_queries(const Head<Stored>& head, uint32_t first_query, uint32_t s) {
  uint32_t bits = 0;
  REPRISE_ROLLED
  for (uint32_t i = 0; i < 4; ++i) bits |= seen_bits(head, query_of(first_query) + i, s) << 4 * i;
  return bits;
}
__device__ inline bool is_seen(uint32_t bits, uint32_t i, uint32_t j) { return (bits >> (4 * i + j) & 1) != 0; }

// Constants that convert products of q and k to scores. `factor` is the factor of a product. It is
// 1 if scores are capped, because cap_scores() has already multiplied by the scale. `bend` is the
// reciprocal of the cap; 0 if scores are not capped.
struct ScoreScale {
  float factor, bend;

  template <typename Args>
  __device__ ScoreScale(const Args& args, float scale) {
    const float softcap = args.attention.softcap;
    factor = softcap > 0 ? 1.0f : scale;
    bend = softcap > 0 ? 1.0f / softcap : 0.0f;
  }
  // Returns the derivative of a capped score with respect to the uncapped score; 1 without a cap.
  __device__ float slope(float capped) const { return fmaf(-(capped * bend), capped * bend, 1.0f); }
};
// Converts products of q and k to capped scores. A rolled loop reads the products from the thread's
// own elements of `shared`, because tanh of all 16 products at once would spill registers.
template <typename Shared>
__device__ void cap_scores(Shared& shared, Square& scores, float scale, float softcap) {
  store_by_row(shared, scores);
  REPRISE_ROLLED
  for (uint32_t i = 0; i < 4; ++i) {
    SharedPack pack = shared[(4 * down() + i) * kPitch + across()];
    REPRISE_UNROLL
    for (uint32_t j = 0; j < 4; ++j) pack.at[j] = softcap * device_tanh(pack.at[j] * scale / softcap);
    shared[(4 * down() + i) * kPitch + across()] = pack;
  }
  REPRISE_UNROLL
  for (uint32_t i = 0; i < 4; ++i) {
    const SharedPack pack = shared[(4 * down() + i) * kPitch + across()];
    REPRISE_UNROLL
    for (uint32_t j = 0; j < 4; ++j) scores.at[i][j] = pack.at[j];
  }
  __syncthreads();  // the caller overwrites `shared` next
}

// ---- forward ----

// Returns the sum over the eight lanes that share a row. All eight get the same bits.
__device__ inline float row_sum(float value) {
  for (uint32_t distance = kTilePacks / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync(kAllLanes, value, static_cast<int>(distance));
  return value;
}
__device__ inline float row_max(float value) {
  for (uint32_t distance = kTilePacks / 2; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, value, static_cast<int>(distance));
    value = other > value ? other : value;
  }
  return value;
}

// The online softmax of this thread's four queries. `largest` is a query's largest score so far;
// -infinity until a key is seen. `sum` is the sum of exp(score - largest).
struct OnlineSoftmax {
  float largest[4] = {kMinusInfinity, kMinusInfinity, kMinusInfinity, kMinusInfinity};
  float sum[4] = {};

  // Updates the maxima and converts scores to weights exp(score - largest). The caller must
  // multiply its sums over earlier keys by `rescale`.
  __device__ void update(Square& scores, float (&rescale)[4]) {
    REPRISE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      float (&row)[4] = scores.at[i];
      float maximum = largest[i];
      REPRISE_UNROLL
      for (uint32_t j = 0; j < 4; ++j) maximum = row[j] > maximum ? row[j] : maximum;
      maximum = row_max(maximum);
      const float shift = maximum == kMinusInfinity ? 0.0f : maximum;
      REPRISE_UNROLL
      for (uint32_t j = 0; j < 4; ++j) row[j] = device_exp(row[j] - shift);
      rescale[i] = device_exp(largest[i] - shift);
      sum[i] = fmaf(sum[i], rescale[i], row_sum((row[0] + row[1]) + (row[2] + row[3])));
      largest[i] = maximum;
    }
  }
};

template <typename Stored, uint32_t kSlabs>
__global__ void __launch_bounds__(kThreads) attention_forward_tiles(const AttentionForwardArgsOf<Stored> args) {
  REPRISE_SHARED(SharedPack, left, kSlabPacks);
  REPRISE_SHARED(SharedPack, right, kSlabPacks);
  const uint32_t tiles = static_cast<uint32_t>(parts(args.T, kTile)), heads = args.attention.heads;
  const uint32_t first_query = (tiles - 1 - blockIdx.x % tiles) * kTile;  // the blocks with most keys start first
  const Head<Stored> head(args, blockIdx.x / tiles / heads, blockIdx.x / tiles % heads);
  const WeightMask mask(args, head);
  const uint32_t query = query_of(first_query);
  OnlineSoftmax softmax;
  TileRows<kSlabs> y;
  const uint32_t end = end_of_keys(head, first_query, kTile);
  for (uint32_t first_key = StartRange(head, first_query, kTile).first / kTile * kTile; first_key < end;
       first_key += kTile) {
    Square scores =
        multiply_rows(left, right, head.rows(args.qkv, head.q, first_query), head.rows(args.qkv, head.k, first_key));
    if (args.attention.softcap > 0) cap_scores(left, scores, head.scale, args.attention.softcap);
    const float factor = ScoreScale(args, head.scale).factor;
    const uint32_t s = first_key + 4 * across(), seen = seen_by_queries(head, first_query, s);
    REPRISE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      REPRISE_UNROLL
      for (uint32_t j = 0; j < 4; ++j)
        scores.at[i][j] = is_seen(seen, i, j) ? scores.at[i][j] * factor : kMinusInfinity;
    }
    float rescale[4];
    softmax.update(scores, rescale);
    y.scale(rescale);
    REPRISE_UNROLL
    for (uint32_t i = 0; mask.drops && i < 4; ++i) {
      const uint32_t kept = mask.kept_bits(query + i, s);
      REPRISE_UNROLL
      for (uint32_t j = 0; j < 4; ++j) scores.at[i][j] *= mask.factor(kept, j);
    }
    store_by_column(left, scores);
    y.add_weighed(left, right, head.rows(args.qkv, head.v, first_key));
  }
  float inverse[4];
  REPRISE_UNROLL
  for (uint32_t i = 0; i < 4; ++i) {
    inverse[i] = 1.0f / softmax.sum[i];
    if (across() == 0 && query + i < args.T) {
      args.lse[head.lse + query + i] = softmax.largest[i] + static_cast<float>(device_log(softmax.sum[i]));
    }
  }
  y.scale(inverse);
  y.store(args.y + head.y + uint64_t{first_query} * head.out, head.out, args.T - first_query, head.D);
}

// ---- backward ----

constexpr uint32_t kDeltaWarps = 8;

// Computes delta[B,heads,T], the sum of dy * y over a head's channels. One warp computes one
// element.
template <typename Stored>
__global__ void __launch_bounds__(kDeltaWarps* kWarpLanes)
    attention_delta(float* delta, const AttentionBackwardArgsOf<Stored> args) {
  const uint64_t rows = uint64_t{args.B} * args.attention.heads * args.T, step = uint64_t{gridDim.x} * kDeltaWarps;
  for (uint64_t r = uint64_t{blockIdx.x} * kDeltaWarps + warp_index(); r < rows; r += step) {
    const uint64_t bh = r / args.T;
    const Head<Stored> head(args, static_cast<uint32_t>(bh / args.attention.heads),
                            static_cast<uint32_t>(bh % args.attention.heads));
    const uint64_t at = head.y + r % args.T * head.out;
    float sum = 0;
    for (uint32_t d = lane_index(); d < head.D; d += kWarpLanes) sum = fmaf(args.dy[at + d], args.y[at + d], sum);
    sum = warp_sum(sum);
    if (lane_index() == 0) delta[r] = sum;
  }
}

// The weights of a tile of scores after dropout, and the gradients of these scores.
struct BackwardTile {
  Square weights, gradients;
};
template <typename Shared, typename Stored>
__device__ BackwardTile backward_tile(Shared& left, Shared& right, const AttentionBackwardArgsOf<Stored>& args,
                                      const float* delta, const Head<Stored>& head, const WeightMask& mask,
                                      uint32_t first_query, uint32_t first_key) {
  BackwardTile tile;
  tile.weights =
      multiply_rows(left, right, head.rows(args.qkv, head.q, first_query), head.rows(args.qkv, head.k, first_key));
  if (args.attention.softcap > 0) cap_scores(left, tile.weights, head.scale, args.attention.softcap);
  tile.gradients =
      multiply_rows(left, right, head.out_rows(args.dy, first_query), head.rows(args.qkv, head.v, first_key));
  const ScoreScale of_scores(args, head.scale);
  const uint32_t query = query_of(first_query), s = first_key + 4 * across(),
                 seen = seen_by_queries(head, first_query, s);
  REPRISE_UNROLL
  for (uint32_t i = 0; i < 4; ++i) {
    const uint64_t at = head.lse + query + i;
    const bool inside = query + i < head.T;
    const float lse = inside ? args.lse[at] : 0.0f, of_row = inside ? delta[at] : 0.0f;
    const uint32_t kept = mask.drops ? mask.kept_bits(query + i, s) : 15;
    REPRISE_UNROLL
    for (uint32_t j = 0; j < 4; ++j) {
      const float p = is_seen(seen, i, j) ? device_exp(fmaf(tile.weights.at[i][j], of_scores.factor, -lse)) : 0.0f;
      const float slope = of_scores.slope(tile.weights.at[i][j]);
      tile.weights.at[i][j] = p * mask.factor(kept, j);
      tile.gradients.at[i][j] = p * fmaf(tile.gradients.at[i][j], mask.factor(kept, j), -of_row) * (head.scale * slope);
    }
  }
  return tile;
}

template <typename Stored, uint32_t kSlabs>
__global__ void __launch_bounds__(kThreads)
    attention_backward_queries(const AttentionBackwardArgsOf<Stored> args, const float* delta) {
  REPRISE_SHARED(SharedPack, left, kSlabPacks);
  REPRISE_SHARED(SharedPack, right, kSlabPacks);
  const uint32_t tiles = static_cast<uint32_t>(parts(args.T, kTile)), heads = args.attention.heads;
  const uint32_t first_query = (tiles - 1 - blockIdx.x % tiles) * kTile;
  const Head<Stored> head(args, blockIdx.x / tiles / heads, blockIdx.x / tiles % heads);
  const WeightMask mask(args, head);
  TileRows<kSlabs> dq;
  const uint32_t end = end_of_keys(head, first_query, kTile);
  for (uint32_t first_key = StartRange(head, first_query, kTile).first / kTile * kTile; first_key < end;
       first_key += kTile) {
    const BackwardTile tile = backward_tile(left, right, args, delta, head, mask, first_query, first_key);
    store_by_column(left, tile.gradients);
    dq.add_weighed(left, right, head.rows(args.qkv, head.k, first_key));
  }
  dq.store(args.dqkv + head.q + uint64_t{first_query} * head.row, head.row, args.T - first_query, head.D);
}

// Computes dk if kKeys and dv if kValues. A launch computes only one of them, because the sums of
// dk and dv together would spill registers on some architectures. The launch bounds request 6 or 4
// blocks on a multiprocessor. With more blocks, even dk alone would spill.
template <typename Stored, uint32_t kSlabs, bool kKeys, bool kValues>
__global__ void __launch_bounds__(kThreads, kSlabs == 2 ? 6 : 4)
    attention_backward_keys(const AttentionBackwardArgsOf<Stored> args, const float* delta) {
  REPRISE_SHARED(SharedPack, left, kSlabPacks);
  REPRISE_SHARED(SharedPack, right, kSlabPacks);
  const uint32_t tiles = static_cast<uint32_t>(parts(args.T, kTile)), kv_heads = args.attention.kv_heads;
  const uint32_t group = args.attention.heads / kv_heads, first_key = blockIdx.x % tiles * kTile;
  const uint32_t b = blockIdx.x / tiles / kv_heads, first_head = blockIdx.x / tiles % kv_heads * group;
  TileRows<kKeys ? kSlabs : 1> dk;
  TileRows<kValues ? kSlabs : 1> dv;
  for (uint32_t h = first_head; h < first_head + group; ++h) {
    const Head<Stored> head(args, b, h);
    const WeightMask mask(args, head);
    const uint32_t end = head.end_of_seeing(first_key + kTile);
    for (uint32_t first_query = first_tile_of_queries(head, first_key, kTile); first_query < end;
         first_query += kTile) {
      if (StartRange(head, first_query, kTile).first >= first_key + kTile) continue;
      const BackwardTile tile = backward_tile(left, right, args, delta, head, mask, first_query, first_key);
      if constexpr (kValues) {
        store_by_row(left, tile.weights);
        dv.add_weighed(left, right, head.out_rows(args.dy, first_query));
      }
      if constexpr (kKeys) {
        store_by_row(left, tile.gradients);
        dk.add_weighed(left, right, head.rows(args.qkv, head.q, first_query));
      }
    }
  }
  const Head<Stored> head(args, b, first_head);
  if constexpr (kKeys)
    dk.store(args.dqkv + head.k + uint64_t{first_key} * head.row, head.row, args.T - first_key, head.D);
  if constexpr (kValues)
    dv.store(args.dqkv + head.v + uint64_t{first_key} * head.row, head.row, args.T - first_key, head.D);
}

// ---- documents ----

constexpr uint32_t kSearchWarps = 8;

// Records a fault at the first position t whose document start is invalid. A start must be at least
// 0 and at most t. Without causality it must also be either t or the start of position t - 1. Runs
// as one block.
static __global__ void __launch_bounds__(kSearchWarps * kWarpLanes)
    note_bad_start(StepScalars* scalars, uint32_t row, const int32_t* starts, uint64_t n, uint32_t T, uint32_t causal) {
  REPRISE_SHARED(uint64_t, shared, kSearchWarps);
  uint64_t first = n;
  for (uint64_t i = threadIdx.x; i < n && first == n; i += kSearchWarps * kWarpLanes) {
    const uint64_t t = i % T;
    const bool is_before = starts[i] >= 0 && static_cast<uint64_t>(starts[i]) <= t;
    const bool is_right =
        is_before && (causal != 0 || static_cast<uint64_t>(starts[i]) == t || starts[i] == starts[i - 1]);
    if (!is_right) first = i;
  }
  first = warp_min(first);
  if (lane_index() == 0) shared[warp_index()] = first;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (uint32_t w = 1; w < kSearchWarps; ++w) first = minimum(first, shared[w]);
  if (first == n || scalars->fault.code != DataFault::kNone) return;
  scalars->fault = {DataFault::kDocument, row, first};
  scalars->skip = 1;
}
template <typename Args>
void check_documents(const KernelContext& context, const Args& args) {
  if (args.document_start == nullptr || context.scalars == nullptr) return;
  REPRISE_LAUNCH(note_bad_start, 1, kSearchWarps * kWarpLanes, context.queue, context.scalars, context.row,
                 args.document_start, uint64_t{args.B} * args.T, args.T, args.attention.causal);
}

// ---- launching ----

// Heads of f32 with up to 64 columns use two slabs, wider heads use eight. Heads of bf16 that do
// not fit tensor cores (attention_uses_mma) always use eight, because they are rare.

template <typename Stored, uint32_t kSlabs>
void launch_forward(const KernelContext& context, const AttentionForwardArgsOf<Stored>& args, uint32_t tiles) {
  const dim3 grid = grid_of(uint64_t{tiles} * args.B * args.attention.heads);
  REPRISE_LAUNCH((attention_forward_tiles<Stored, kSlabs>), grid, kThreads, context.queue, args);
}
template <typename Stored, uint32_t kSlabs>
void launch_backward(const KernelContext& context, const AttentionBackwardArgsOf<Stored>& args, uint32_t tiles) {
  const float* delta = static_cast<const float*>(args.scratch);
  const uint64_t tiles_of_batch = uint64_t{tiles} * args.B;
  const dim3 query_blocks = grid_of(tiles_of_batch * args.attention.heads),
             key_blocks = grid_of(tiles_of_batch * args.attention.kv_heads);
  REPRISE_LAUNCH((attention_backward_queries<Stored, kSlabs>), query_blocks, kThreads, context.queue, args, delta);
  REPRISE_LAUNCH((attention_backward_keys<Stored, kSlabs, true, false>), key_blocks, kThreads, context.queue, args,
                 delta);
  REPRISE_LAUNCH((attention_backward_keys<Stored, kSlabs, false, true>), key_blocks, kThreads, context.queue, args,
                 delta);
}

}  // namespace

template <typename Stored>
Status cuda_attention_forward(const KernelContext& context, const AttentionForwardArgsOf<Stored>& args) {
  const uint32_t D = args.C / args.attention.heads, tiles = static_cast<uint32_t>(parts(args.T, kTile));
  check_documents(context, args);
  if constexpr (sizeof(Stored) == sizeof(float)) {
    (D <= 64 ? launch_forward<Stored, 2> : launch_forward<Stored, 8>)(context, args, tiles);
  } else if (attention_uses_mma(DType::kBf16, D, args.attention)) {
    launch_attention_forward_mma(context, args);
  } else {
    launch_forward<Stored, 8>(context, args, tiles);
  }
  return launch_status();
}

template <typename Stored>
Status cuda_attention_backward(const KernelContext& context, const AttentionBackwardArgsOf<Stored>& args) {
  const uint32_t D = args.C / args.attention.heads, tiles = static_cast<uint32_t>(parts(args.T, kTile));
  check_documents(context, args);
  float* delta = static_cast<float*>(args.scratch);
  const uint64_t rows = uint64_t{args.B} * args.attention.heads * args.T;
  REPRISE_LAUNCH(attention_delta<Stored>, blocks_for(rows * kWarpLanes), kDeltaWarps * kWarpLanes, context.queue, delta,
                 args);
  if constexpr (sizeof(Stored) == sizeof(float)) {
    (D <= 64 ? launch_backward<Stored, 2> : launch_backward<Stored, 8>)(context, args, tiles);
  } else if (attention_uses_mma(DType::kBf16, D, args.attention)) {
    launch_attention_backward_mma(context, args, delta);
  } else {
    launch_backward<Stored, 8>(context, args, tiles);
  }
  return launch_status();
}

REPRISE_CUDA_INSTANTIATE(cuda_attention_forward, AttentionForwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_attention_backward, AttentionBackwardArgs)

}  // namespace reprise
