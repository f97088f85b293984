// Attention's backward on tensor cores (attention_mma.h), after FlashAttention 2 (Dao 2023), in two
// kernels.
//
//   dq      a block has 128 or 64 queries of one head and loops over the keys that they see:
//             scores = q k^T, dweights = dy v^T, dq += dscores k
//   dk, dv  a block has 128 or 64 keys of one shared head and loops over the queries that see them,
//           for each query head of the group:
//             scores^T = k q^T, dweights^T = v dy^T, dv += weights^T dy, dk += dscores^T q
//
// Weights and dscores are rounded to bf16 before they are multiplied, and stay in a warp's
// registers. The kernel of dk and dv computes the scores transposed. So in both kernels the results
// of one mma are the left operand of the next mma.
//
// The two kernels compute seven products, because each of them computes scores and dweights.
// FlashAttention 2 computes five products in one kernel, in which a block of keys adds its part of
// dq to sums in memory. For 128 queries x 128 keys at D = 64, that kernel reads and writes 64 KiB
// of sums. Its five products take 5120 clocks of an Orin's multiprocessor and about 2000 of an
// H100's. The sums thus need 13 bytes a clock from each multiprocessor of an Orin. Its memory
// provides no more, and the sums do not fit its L2 if T = 1024. On an H100 they need 32 bytes a
// clock, more than its L2 provides. For a fixed order of addition, each block of keys that runs
// would also need its own copy of the sums. One more kernel would round the sums. The two extra
// products cost 40% more arithmetic, and arithmetic bounds the time. In return, the two kernels
// need no scratch for sums, and any number of blocks can run at once.
//
// Registers allow two blocks of either kernel on a multiprocessor. Shared memory also allows two,
// because a block uses at most 66 KiB.
#include "cuda/attention/attention_mma.h"
#include "cuda/attention/attention_tiles.h"
#include "cuda/grid.h"

namespace reprise {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();

// The sizes that both kernels share. kOfWarp and kOfBlock are the rows of scores of a warp and of a
// block. A block loops over tiles of kWalked positions, which are keys for dq, and queries for dk
// and dv.
template <uint32_t kD>
struct BackwardShape {
  static constexpr uint32_t kDown = kD == 64 ? 2 : 1;  // with kD = 128, kDown = 2 would not fit the registers
  static constexpr uint32_t kOfWarp = 16 * kDown, kOfBlock = AttentionMma::kWarps * kOfWarp, kWalked = 64;
};

// ---- dq ----

template <uint32_t kD>
struct QueryShape : BackwardShape<kD> {
  using Base = BackwardShape<kD>;
  static constexpr uint32_t kAcross = 4 / Base::kDown, kStep = 8 * kAcross;  // kStep: keys of a warp at a time
  using Queries = HeadTile<kD, Base::kOfBlock>;
  using Keys = HeadTile<kD, Base::kWalked, FoursAcross>;
  static constexpr uint32_t kStageBytes = 2 * Keys::kBytes;  // one tile of k and one of v
  static constexpr uint32_t kSharedBytes = 2 * kStageBytes;  // two stages; at first their space contains q and dy
  static_assert(2 * Queries::kBytes <= kSharedBytes);
};

// The queries of one lane: the keys that they see, and their lse and delta.
template <uint32_t kD>
struct LaneQueries {
  using Shape = QueryShape<kD>;
  uint32_t first;                   // first query of the warp
  uint32_t end;                     // one past the last key that some query of the warp sees
  uint32_t last_start, common_end;  // all queries of the warp see the keys in [last_start, common_end)
  WeightExponent exponents[Shape::kDown][2];
  float delta[Shape::kDown][2];

  __device__ LaneQueries(const Head<Bf16>& head, uint32_t first_of_block, uint32_t end_of_block, const float* lse,
                         const float* deltas)
      : first(first_of_block + warp_index() * Shape::kOfWarp) {
    end = end_of_warp_keys(head, first, Shape::kOfWarp, end_of_block);
    last_start = first < head.T ? StartRange(head, first, Shape::kOfWarp).last : 0;
    common_end = end_of_common_keys(head, first);
    for_each([&](uint32_t i, uint32_t half) {
      const bool inside = t(i, half) < head.T;
      exponents[i][half] = WeightExponent(head.scale * kLog2E, inside ? kLog2E * lse[head.lse + t(i, half)] : 0.0f);
      delta[i][half] = inside ? deltas[head.lse + t(i, half)] : 0.0f;
    });
  }
  template <typename F>
  __device__ static void for_each(const F& f) {
    REPRISE_UNROLL
    for (uint32_t i = 0; i < Shape::kDown; ++i) f(i, 0), f(i, 1);
  }
  __device__ uint32_t t(uint32_t i, uint32_t half) const { return first + 16 * i + 8 * half + lane_index() / 4; }
  // Returns the position of the lane's nth key among the keys from first_key on.
  __device__ static uint32_t key(uint32_t first_key, uint32_t n) {
    return first_key + n / 4 * 16 + lane_index() % 4 * 4 + n % 4;
  }

  using Scores = WarpSums<Shape::kDown, Shape::kAcross>;
  // Sets the scores of keys that a query does not see to -infinity.
  __device__ void hide(Scores& scores, const Head<Bf16>& head, uint32_t first_key) const {
    const uint32_t seen = bits_of(first_key, [&](uint32_t query, uint32_t s) { return seen_bits(head, query, s); });
    for_each([&](uint32_t i, uint32_t half) {
      REPRISE_UNROLL
      for (uint32_t n = 0; n < 2 * Shape::kAcross; ++n) {
        if (!bit_of(seen, i, half, n)) scores.at[i][n / 2][2 * half + n % 2] = kMinusInfinity;
      }
    });
  }
  // Returns 16 bits, one for each of the lane's scores. Iteration `turn` handles one of the lane's
  // rows (i, half), and the lane's four adjacent keys in one group of 16 keys. The four bits from
  // bit 4 * turn on are the result of four(query of the row, first of the four keys).
  template <typename Four>
  __device__ uint32_t bits_of(uint32_t first_key, const Four& four) const {
    uint32_t bits = 0;
    REPRISE_ROLLED  // so that the code of Philox and of seen_bits() exists once
    for (uint32_t turn = 0; turn < 4; ++turn) {
      const uint32_t row = turn % (2 * Shape::kDown), group = turn / (2 * Shape::kDown);
      bits |= four(t(row / 2, row % 2), key(first_key, 4 * group)) << 4 * turn;
    }
    return bits;
  }
  // Returns the bit in `bits`, a result of bits_of(), of row (i, half) and the lane's nth key.
  __device__ static bool bit_of(uint32_t bits, uint32_t i, uint32_t half, uint32_t n) {
    const uint32_t turn = 2 * i + half + n / 4 * 2 * Shape::kDown;
    return (bits >> (4 * turn + n % 4) & 1) != 0;
  }
  // Returns a bit for each of the lane's weights, in the order of bits_of(). A bit is set if
  // dropout keeps the weight.
  __device__ uint32_t kept(const WeightMask& mask, uint32_t first_key) const {
    return bits_of(first_key, [&](uint32_t query, uint32_t s) { return mask.kept_bits(query, s); });
  }
  // Converts gradients of the weights after dropout to gradients of the weights before dropout.
  __device__ static void drop(Scores& gradients, uint32_t kept, float factor) {
    for_each([&](uint32_t i, uint32_t half) {
      REPRISE_UNROLL
      for (uint32_t n = 0; n < 2 * Shape::kAcross; ++n) {
        gradients.at[i][n / 2][2 * half + n % 2] *= bit_of(kept, i, half, n) ? factor : 0.0f;
      }
    });
  }
  // Converts gradients of the weights to gradients of the scores, without the factor head.scale.
  __device__ void differentiate(const Scores& scores, Scores& gradients) const {
    for_each([&](uint32_t i, uint32_t half) {
      REPRISE_UNROLL
      for (uint32_t j = 0; j < Shape::kAcross; ++j) {
        REPRISE_UNROLL
        for (uint32_t e = 2 * half; e < 2 * half + 2; ++e) {
          const float weight = exponents[i][half].weight(scores.at[i][j][e]);
          gradients.at[i][j][e] = weight * (gradients.at[i][j][e] - delta[i][half]);
        }
      }
    });
  }
};

template <uint32_t kD>
__global__ void __launch_bounds__(AttentionMma::kThreads, 2)
    attention_backward_queries_mma(const AttentionBackwardArgsOf<Bf16> args, const float* delta) {
  using Shape = QueryShape<kD>;
  REPRISE_DYNAMIC_SHARED(shared, QueryShape<kD>::kSharedBytes);
  REPRISE_SHARED(Head<Bf16>, head_of_block, 1);  // in shared memory, because registers are few
  const auto head = [&]() -> Head<Bf16> { return head_of_block[0]; };
  const uint32_t tiles = static_cast<uint32_t>(parts(args.T, Shape::kOfBlock)), heads = args.attention.heads;
  const uint32_t first_query = (tiles - 1 - blockIdx.x % tiles) * Shape::kOfBlock;  // blocks with most keys start first
  if (threadIdx.x == 0) head_of_block[0] = Head<Bf16>(args, blockIdx.x / tiles / heads, blockIdx.x / tiles % heads);
  __syncthreads();
  const uint32_t end = end_of_keys(head(), first_query, Shape::kOfBlock);  // one past the last key that the block sees
  const LaneQueries<kD> queries(head(), first_query, end, args.lse, delta);
  uint32_t first_key = StartRange(head(), first_query, Shape::kOfBlock).first / Shape::kWalked * Shape::kWalked;

  Shape::Queries::copy(shared, 0, head().rows(args.qkv, head().q, first_query));
  Shape::Queries::copy(shared, Shape::Queries::kBytes, head().out_rows(args.dy, first_query));
  commit_copies();
  wait_copies<0>();
  __syncthreads();
  LeftRows<Shape::kDown, kD> q, dy;
  q.load(shared, 0, warp_index() * Shape::kOfWarp);
  dy.load(shared, Shape::Queries::kBytes, warp_index() * Shape::kOfWarp);
  __syncthreads();  // all warps have loaded their queries; tiles of keys overwrite them next

  const auto copy = [&](uint32_t stage, uint32_t first) {
    if (first < end) {
      Shape::Keys::copy(shared, stage, head().rows(args.qkv, head().k, first));
      Shape::Keys::copy(shared, stage + Shape::Keys::kBytes, head().rows(args.qkv, head().v, first));
    }
    commit_copies();
  };
  const LanePlace<kD> rows_first = LanePlace<kD>::rows_first(), columns_first = LanePlace<kD>::columns_first();
  WarpSums<Shape::kDown, kD / 8> dq;
  uint32_t stage = 0;
  copy(stage, first_key);
  for (; first_key < end; first_key += Shape::kWalked) {
    wait_copies<0>();
    __syncthreads();  // this tile is complete, and all warps have finished with the previous tile
    copy(Shape::kStageBytes - stage, first_key + Shape::kWalked);
    REPRISE_ROLLED
    for (uint32_t row = 0; row < Shape::kWalked; row += Shape::kStep) {
      const uint32_t key = first_key + row;
      if (key >= queries.end) break;
      uint32_t kept = 0;  // the mask is drawn here, while no scores are in registers
      if (args.attention.dropout > 0) kept = queries.kept(WeightMask(args, head()), key);
      typename LaneQueries<kD>::Scores scores, gradients;
      REPRISE_UNROLL
      for (uint32_t depth = 0; depth < kD; depth += 16) {
        scores.add_scores(q.at[depth / 16], shared, columns_first, stage, row, depth);
        gradients.add_scores(dy.at[depth / 16], shared, columns_first, stage + Shape::Keys::kBytes, row, depth);
      }
      if (key + Shape::kStep > queries.common_end || key < queries.last_start) queries.hide(scores, head(), key);
      if (args.attention.dropout > 0) queries.drop(gradients, kept, kept_factor(args.attention.dropout));
      queries.differentiate(scores, gradients);
      REPRISE_UNROLL
      for (uint32_t j = 0; j < Shape::kAcross / 2; ++j)
        dq.add_weighed(gradients.as_left(j), shared, rows_first, stage, row + 16 * j);
    }
    stage = Shape::kStageBytes - stage;
  }
  LaneQueries<kD>::for_each([&](uint32_t i, uint32_t half) {
    const uint32_t t = queries.t(i, half);
    dq.scale(i, half, head().scale);
    if (t < args.T) dq.store(i, half, args.dqkv + head().q + uint64_t{t} * head().row, head().D);
  });
}

// ---- dk and dv ----

template <uint32_t kD>
struct KeyShape : BackwardShape<kD> {
  using Base = BackwardShape<kD>;
  static constexpr uint32_t kAcross = 2, kStep = 8 * kAcross;  // kStep: queries of a warp at a time
  using Keys = HeadTile<kD, Base::kOfBlock, NeighboursDown<Base::kDown>>;
  using Queries = HeadTile<kD, Base::kWalked>;
  // Byte offsets in a stage. A stage contains q and dy of kWalked queries, and then the lse, delta
  // and document start of each query. These three begin at kLse, kDelta and kStart.
  static constexpr uint32_t kLse = 2 * Queries::kBytes, kDelta = kLse + 4 * Base::kWalked,
                            kStart = kDelta + 4 * Base::kWalked;
  static constexpr uint32_t kStageBytes = kStart + 4 * Base::kWalked;
  static constexpr bool kKeepsV = kD == 128;  // true: v stays in registers, as k does; false: v is in shared memory
  static constexpr uint32_t kV = kKeepsV ? 0 : Keys::kBytes;
  static constexpr uint32_t kSharedBytes = kV + 2 * kStageBytes;  // at first the stages contain k, and v if kKeepsV
  static_assert((kKeepsV ? 2 : 1) * Keys::kBytes <= 2 * kStageBytes);
};

// Begins the copies of a stage: q, dy, lse, delta and document starts from first_query on.
template <uint32_t kD>
__device__ void copy_queries(const SharedBytes& shared, uint32_t stage, const AttentionBackwardArgsOf<Bf16>& args,
                             const float* delta, const Head<Bf16>& head, uint32_t first_query) {
  using Shape = KeyShape<kD>;
  Shape::Queries::copy(shared, stage, head.rows(args.qkv, head.q, first_query));
  Shape::Queries::copy(shared, stage + Shape::Queries::kBytes, head.out_rows(args.dy, first_query));
  static_assert(AttentionMma::kThreads == 2 * Shape::kWalked);
  const uint32_t i = threadIdx.x % Shape::kWalked;
  const bool inside = first_query + i < head.T, first_half = threadIdx.x < Shape::kWalked;
  copy_async<4>(shared, stage + Shape::kLse + 4 * threadIdx.x,
                (first_half ? args.lse : delta) + (inside ? head.lse + first_query + i : 0), inside ? 4 : 0);
  if (head.starts != nullptr && first_half) {
    copy_async<4>(shared, stage + Shape::kStart + 4 * i, head.starts + (inside ? first_query + i : 0), inside ? 4 : 0);
  }
}

// The keys of one lane, and functions on its scores, which are [keys][queries].
template <uint32_t kD>
struct LaneKeys {
  using Shape = KeyShape<kD>;
  uint32_t first;  // first key of the warp

  // Returns the position of the lane's nth key; n is 2 i + half.
  __device__ uint32_t key(uint32_t n) const { return first + lane_index() / 4 * 2 * Shape::kDown + n; }

  using Scores = WarpSums<Shape::kDown, Shape::kAcross>;
  // Calls f(query, key, i, j, e) for each of the lane's scores at[i][j][e]. `query` and `key` are
  // indices among the lane's own queries and keys. key(n) converts an index of a key to a position.
  // of_step(n) converts an index of a query to its offset in the step.
  template <typename F>
  __device__ static void for_each(const F& f) {
    REPRISE_UNROLL
    for (uint32_t i = 0; i < Shape::kDown; ++i) {
      REPRISE_UNROLL
      for (uint32_t j = 0; j < Shape::kAcross; ++j) {
        REPRISE_UNROLL
        for (uint32_t e = 0; e < 4; ++e) f(2 * j + e % 2, 2 * i + e / 2, i, j, e);
      }
    }
  }
  __device__ static uint32_t of_step(uint32_t n) { return n / 2 * 8 + lane_index() % 4 * 2 + n % 2; }
  // Values of one kind (lse, delta or document start), read from shared memory at `offset`: one
  // value for each query of this step whose scores the lane has.
  template <typename T>
  struct OfQueries {
    T at[2 * Shape::kAcross];
    __device__ OfQueries(const SharedBytes& shared, uint32_t offset) {
      REPRISE_UNROLL
      for (uint32_t n = 0; n < 2 * Shape::kAcross; n += 2) {
        const Words<T, 2> two = shared.load<Words<T, 2>>(offset + 4 * of_step(n));
        at[n] = two.at[0], at[n + 1] = two.at[1];
      }
    }
  };

  // Sets the scores of keys that a query does not see to -infinity, for causal attention. `starts`
  // is the offset of the queries' document starts in shared memory; used if `documents`. `window`
  // is the number of positions that a query sees; 0 if there is no window.
  __device__ void hide(Scores& scores, const SharedBytes& shared, uint32_t starts, bool documents, uint32_t window,
                       uint32_t first_query) const {
    for_each([&](uint32_t query, uint32_t n, uint32_t i, uint32_t j, uint32_t e) {
      if (key(n) > first_query + of_step(query)) scores.at[i][j][e] = kMinusInfinity;
    });
    if (window != 0) {
      for_each([&](uint32_t query, uint32_t n, uint32_t i, uint32_t j, uint32_t e) {
        if (first_query + of_step(query) >= key(n) + window) scores.at[i][j][e] = kMinusInfinity;
      });
    }
    if (!documents) return;
    const OfQueries<int32_t> start(shared, starts);
    for_each([&](uint32_t query, uint32_t n, uint32_t i, uint32_t j, uint32_t e) {
      if (static_cast<int32_t>(key(n)) < start.at[query]) scores.at[i][j][e] = kMinusInfinity;
    });
  }
  // Sets a score to -infinity if its query and its key are in different documents, for attention
  // that is not causal. `starts` is the offset of the queries' document starts in shared memory.
  // `of_keys` contains the document starts of the block's keys, which begin at first_key.
  template <typename Shared>
  __device__ void hide_documents(Scores& scores, const SharedBytes& shared, uint32_t starts, Shared& of_keys,
                                 uint32_t first_key) const {
    const OfQueries<int32_t> start(shared, starts);
    for_each([&](uint32_t query, uint32_t n, uint32_t i, uint32_t j, uint32_t e) {
      if (start.at[query] != of_keys[key(n) - first_key]) scores.at[i][j][e] = kMinusInfinity;
    });
  }
  // Returns a bit for each of the lane's weights; set if dropout keeps the weight. Bit 4 * query +
  // key belongs to the weight of `query` and `key`, which are indices among the lane's own queries
  // and keys, as in for_each().
  __device__ uint32_t kept(const WeightMask& mask, uint32_t first_query) const {
    uint32_t bits = 0;
    REPRISE_ROLLED  // so that the code of Philox exists once
        for (uint32_t query = 0; query < 2 * Shape::kAcross; ++query) bits |=
        mask.kept_bits(first_query + of_step(query), key(0)) << 4 * query;
    return bits;
  }
};

template <uint32_t kD>
__global__ void __launch_bounds__(AttentionMma::kThreads, 2)
    attention_backward_keys_mma(const AttentionBackwardArgsOf<Bf16> args, const float* delta) {
  using Shape = KeyShape<kD>;
  REPRISE_DYNAMIC_SHARED(shared, KeyShape<kD>::kSharedBytes);
  REPRISE_SHARED(Head<Bf16>, head_of_block, 1);  // in shared memory, because registers are few
  const auto head = [&]() -> Head<Bf16> { return head_of_block[0]; };
  const uint32_t tiles = static_cast<uint32_t>(parts(args.T, Shape::kOfBlock)), kv_heads = args.attention.kv_heads;
  REPRISE_SHARED(uint32_t, heads_left, 1);  // query heads of the group that are not finished, including the current one
  const uint32_t group = args.attention.heads / kv_heads, first_key = blockIdx.x % tiles * Shape::kOfBlock;
  if (threadIdx.x == 0) {
    head_of_block[0] = Head<Bf16>(args, blockIdx.x / tiles / kv_heads, blockIdx.x / tiles % kv_heads * group);
    heads_left[0] = group;
  }
  REPRISE_SHARED(int32_t, key_starts, Shape::kOfBlock);  // document start of each key; used only without causality
  if (args.attention.causal == 0 && args.document_start != nullptr && threadIdx.x < Shape::kOfBlock) {
    const uint64_t sequence = uint64_t{blockIdx.x / tiles / kv_heads} * args.T;
    key_starts[threadIdx.x] = args.document_start[sequence + minimum(first_key + threadIdx.x, args.T - 1)];
  }
  __syncthreads();
  const LaneKeys<kD> keys{first_key + warp_index() * Shape::kOfWarp};
  const LanePlace<kD> rows_first = LanePlace<kD>::rows_first(), columns_first = LanePlace<kD>::columns_first();

  LeftRows<Shape::kDown, kD> k, v;
  Shape::Keys::copy(shared, Shape::kV, head().rows(args.qkv, head().k, first_key));
  Shape::Keys::copy(shared, Shape::kKeepsV ? Shape::Keys::kBytes : 0, head().rows(args.qkv, head().v, first_key));
  commit_copies();
  wait_copies<0>();
  __syncthreads();
  k.load(shared, Shape::kV, warp_index() * Shape::kOfWarp);
  if constexpr (Shape::kKeepsV) v.load(shared, Shape::Keys::kBytes, warp_index() * Shape::kOfWarp);
  WarpSums<Shape::kDown, kD / 8> dk, dv;
  REPRISE_ROLLED
  while (true) {
    __syncthreads();  // first iteration: all warps have loaded their keys; later: all threads see the next head
    const auto next_seeing = [&](uint32_t first_query) {
      while (first_query < args.T &&
             StartRange(head(), first_query, Shape::kWalked).first >= first_key + Shape::kOfBlock) {
        first_query += Shape::kWalked;
      }
      return first_query;
    };
    const auto copy = [&](uint32_t stage, uint32_t first_query) {
      if (first_query < args.T) copy_queries<kD>(shared, stage, args, delta, head(), first_query);
      commit_copies();
    };
    // Adds the contribution of kStep queries to dk and dv. The queries begin at `query` and are in
    // `stage`.
    const auto add = [&](uint32_t stage, uint32_t query) {
      if (args.attention.causal != 0 && query + Shape::kStep <= keys.first) return;
      const uint32_t row = query % Shape::kWalked;
      uint32_t kept = 0;  // the mask is drawn here, while no scores are in registers
      if (args.attention.dropout > 0) kept = keys.kept(WeightMask(args, head()), query);
      typename LaneKeys<kD>::Scores weights, gradients;  // [keys][queries]
      REPRISE_UNROLL
      for (uint32_t depth = 0; depth < kD; depth += 16) {
        weights.add_scores(k.at[depth / 16], shared, columns_first, stage, row, depth);
        if constexpr (!Shape::kKeepsV)
          v.at[depth / 16].load(shared, rows_first, 0, warp_index() * Shape::kOfWarp, depth);
        gradients.add_scores(v.at[depth / 16], shared, columns_first, stage + Shape::Queries::kBytes, row, depth);
      }
      const bool documents = args.document_start != nullptr;
      if (args.attention.causal == 0) {
        if (documents) keys.hide_documents(weights, shared, stage + Shape::kStart + 4 * row, key_starts, first_key);
      } else if (documents || args.attention.window != 0 || keys.first + Shape::kOfWarp > query + 1) {
        keys.hide(weights, shared, stage + Shape::kStart + 4 * row, documents, args.attention.window, query);
      }
      if (args.attention.dropout > 0) {
        const float factor = kept_factor(args.attention.dropout);
        keys.for_each([&](uint32_t q, uint32_t n, uint32_t i, uint32_t j, uint32_t e) {
          gradients.at[i][j][e] *= (kept >> (4 * q + n) & 1) != 0 ? factor : 0.0f;
        });
      }
      const typename LaneKeys<kD>::template OfQueries<float> lse(shared, stage + Shape::kLse + 4 * row);
      const typename LaneKeys<kD>::template OfQueries<float> of_row(shared, stage + Shape::kDelta + 4 * row);
      const float log2_scale = head().scale * kLog2E;
      keys.for_each([&](uint32_t q, uint32_t, uint32_t i, uint32_t j, uint32_t e) {
        const float weight = WeightExponent(log2_scale, kLog2E * lse.at[q]).weight(weights.at[i][j][e]);
        gradients.at[i][j][e] = weight * (gradients.at[i][j][e] - of_row.at[q]);
        weights.at[i][j][e] = weight;
      });
      if (args.attention.dropout > 0) {
        keys.for_each([&](uint32_t q, uint32_t n, uint32_t i, uint32_t j, uint32_t e) {
          if ((kept >> (4 * q + n) & 1) == 0) weights.at[i][j][e] = 0;
        });
      }
      dv.add_weighed(weights.as_left(0), shared, rows_first, stage + Shape::Queries::kBytes, row);
      dk.add_weighed(gradients.as_left(0), shared, rows_first, stage, row);
    };
    uint32_t stage = Shape::kV, query = next_seeing(first_tile_of_queries(head(), first_key, Shape::kWalked));
    copy(stage, query);
    while (query < args.T) {
      wait_copies<0>();
      __syncthreads();  // this tile is complete, and all warps have finished with the previous tile
      copy(2 * Shape::kV + Shape::kStageBytes - stage, next_seeing(query + Shape::kWalked));
      REPRISE_ROLLED
      do {
        add(stage, query);
        query += Shape::kStep;
      } while (query % Shape::kWalked != 0 && query < args.T);
      stage = 2 * Shape::kV + Shape::kStageBytes - stage;
      query = next_seeing(static_cast<uint32_t>(parts(query, Shape::kWalked)) * Shape::kWalked);
    }
    if (heads_left[0] == 1) break;
    __syncthreads();  // all threads have finished with this head
    if (threadIdx.x == 0) {
      Head<Bf16> next = head();
      next.advance();
      head_of_block[0] = next;
      heads_left[0] = heads_left[0] - 1;
    }
  }
  const float kept = kept_factor(args.attention.dropout);
  REPRISE_UNROLL
  for (uint32_t n = 0; n < 2 * Shape::kDown; ++n) {
    const uint32_t s = keys.key(n);
    dk.scale(n / 2, n % 2, head().scale);
    dv.scale(n / 2, n % 2, kept);
    if (s >= args.T) continue;
    dk.store(n / 2, n % 2, args.dqkv + head().k + uint64_t{s} * head().row, head().D);
    dv.store(n / 2, n % 2, args.dqkv + head().v + uint64_t{s} * head().row, head().D);
  }
}

// ---- launching ----

template <uint32_t kD>
void launch(const KernelContext& context, const AttentionBackwardArgsOf<Bf16>& args, const float* delta) {
  const uint32_t tiles = static_cast<uint32_t>(parts(args.T, BackwardShape<kD>::kOfBlock));
  const uint64_t tiles_of_batch = uint64_t{tiles} * args.B;
  const dim3 query_blocks = grid_of(tiles_of_batch * args.attention.heads),
             key_blocks = grid_of(tiles_of_batch * args.attention.kv_heads);
  REPRISE_LAUNCH_DYNAMIC(attention_backward_queries_mma<kD>, query_blocks, AttentionMma::kThreads,
                         QueryShape<kD>::kSharedBytes, context.queue, args, delta);
  REPRISE_LAUNCH_DYNAMIC(attention_backward_keys_mma<kD>, key_blocks, AttentionMma::kThreads,
                         KeyShape<kD>::kSharedBytes, context.queue, args, delta);
}

}  // namespace

void launch_attention_backward_mma(const KernelContext& context, const AttentionBackwardArgsOf<Bf16>& args,
                                   const float* delta) {
  (args.C / args.attention.heads <= 64 ? launch<64> : launch<128>)(context, args, delta);
}

}  // namespace reprise
