// One head of attention: the addresses of its rows, the keys that a query sees, and the weights
// that dropout keeps. Shared by the f32 kernels (attention.cu) and the tensor-core kernels
// (attention_forward_mma.cu, attention_backward_mma.cu).
#pragma once

#include <cmath>

#include "cuda/cuda_kernels.h"
#include "cuda/device_math.h"
#include "cuda/grid.h"
#include "cuda/reduce.h"
#include "lib/rng.h"

namespace reprise {

// `count` rows of one head: D columns each, `stride` elements from one row to the next.
template <typename Stored>
struct HeadRows {
  const Stored* x;
  uint32_t stride, count, D;
};

__device__ inline float device_attention_scale(const AttentionAttribute& attention, uint32_t D) {
  return attention.scale != 0 ? attention.scale : 1.0f / sqrtf(static_cast<float>(D));
}

// One query head of one sequence, with the keys and values that it reads.
template <typename Stored>
struct Head {
  uint32_t T, D;
  uint32_t row, out;      // elements from one position to the next: `row` in qkv, `out` in y and dy
  uint64_t q, k, v;       // indices in qkv of the head's first columns at the sequence's first position
  uint64_t y, lse;        // indices in y and in lse of the head's first element in the sequence
  const int32_t* starts;  // [T]: first position of each position's document; null if there are no documents
  uint32_t window;        // positions that a query sees, its own included; 0: no window
  uint32_t causal;
  float scale;

  Head() = default;
  template <typename Args>
  __device__ Head(const Args& args, uint32_t b, uint32_t h) {
    const uint32_t heads = args.attention.heads, kv_heads = args.attention.kv_heads;
    T = args.T, D = args.C / heads;
    row = (heads + 2 * kv_heads) * D, out = args.C;
    const uint64_t sequence = uint64_t{b} * T * row;
    const uint32_t shared_head = h / (heads / kv_heads);
    q = sequence + uint64_t{h} * D;
    k = sequence + (heads + uint64_t{shared_head}) * D;
    v = k + uint64_t{kv_heads} * D;
    y = uint64_t{b} * T * out + uint64_t{h} * D;
    lse = (uint64_t{b} * heads + h) * T;
    starts = args.document_start == nullptr ? nullptr : args.document_start + uint64_t{b} * T;
    window = args.attention.window;
    causal = args.attention.causal;
    scale = device_attention_scale(args.attention, D);
  }
  // Moves to the next query head, which must share the keys and values of this one.
  __device__ void advance() { q += D, y += D, lse += T; }

  // Returns the rows of q, k or v from position `first` on; `begin` is the member q, k or v.
  __device__ HeadRows<Stored> rows(const Stored* x, uint64_t begin, uint32_t first) const {
    return {x + begin + uint64_t{first} * row, row, T - first, D};
  }
  __device__ HeadRows<Stored> out_rows(const Stored* x, uint32_t first) const {
    return {x + y + uint64_t{first} * out, out, T - first, D};
  }

  // Returns the first position that t sees. A document start outside [0, t] is a fault that is
  // reported elsewhere; here the start is clamped to [0, t].
  __device__ uint32_t start(uint32_t t) const {
    const uint32_t of_window = window != 0 && t >= window ? t - window + 1 : 0;
    if (starts == nullptr) return of_window;
    const int32_t start = starts[t];
    const uint32_t of_document = start < 0 ? 0 : (static_cast<uint32_t>(start) > t ? t : static_cast<uint32_t>(start));
    return of_document > of_window ? of_document : of_window;
  }
  // Returns the first position that sees s; s may be past the end. Position t sees s if start(t) <=
  // s and first_seeing(s) <= t. Without causality the result is start(s), because t then sees s if
  // and only if s sees t.
  __device__ uint32_t first_seeing(uint32_t s) const { return causal != 0 || s >= T ? s : start(s); }
  // Returns one past the last query that can see a key before `end_of_keys`. Considers only the
  // window, not the documents.
  __device__ uint32_t end_of_seeing(uint32_t end_of_keys) const {
    return window == 0 ? T : static_cast<uint32_t>(minimum(T, uint64_t{end_of_keys} + window));
  }
};

// The minimum and maximum of start() over `count` queries, at least one of which is before T. All
// lanes of a warp get the same values.
struct StartRange {
  uint32_t first = 0, last = 0;

  template <typename Stored>
  __device__ StartRange(const Head<Stored>& head, uint32_t first_query, uint32_t count) {
    if (head.starts == nullptr) {  // start() then depends only on the window, and never decreases
      first = head.start(first_query),
      last = head.start(static_cast<uint32_t>(minimum(head.T, uint64_t{first_query} + count)) - 1);
      return;
    }
    first = head.T;
    for (uint32_t t = first_query + lane_index(); t < first_query + count && t < head.T; t += kWarpLanes) {
      const uint32_t start = head.start(t);
      first = start < first ? start : first;
      last = start > last ? start : last;
    }
    for (uint32_t distance = kWarpLanes / 2; distance > 0; distance /= 2) {
      const uint32_t other_first = __shfl_xor_sync(kAllLanes, first, static_cast<int>(distance));
      const uint32_t other_last = __shfl_xor_sync(kAllLanes, last, static_cast<int>(distance));
      first = other_first < first ? other_first : first;
      last = other_last > last ? other_last : last;
    }
  }
};

// Returns one past the last position of the document of position t; equal in every lane of a warp.
template <typename Stored>
__device__ uint32_t end_of_document(const Head<Stored>& head, uint32_t t) {
  if (head.starts == nullptr) return head.T;
  for (uint32_t first = t + 1; first < head.T; first += kWarpLanes) {
    const uint32_t s = first + lane_index();
    const uint32_t others = __ballot_sync(kAllLanes, s < head.T && head.starts[s] != head.starts[t]);
    if (others == 0) continue;
    uint32_t lane = 0;
    while ((others >> lane & 1) == 0) ++lane;  // not std::countr_zero, which nvcc compiles to the constant 32
    return first + lane;
  }
  return head.T;
}
// Returns one past the last key that any of `count` queries sees; at least one of them is before T.
template <typename Stored>
__device__ uint32_t end_of_keys(const Head<Stored>& head, uint32_t first_query, uint32_t count) {
  const uint32_t end = static_cast<uint32_t>(minimum(head.T, uint64_t{first_query} + count));
  return head.causal != 0 ? end : end_of_document(head, end - 1);
}
// Returns end_of_keys() of a warp's queries; 0 if none of them is before T. `end_of_block` is
// end_of_keys() of the warp's block. Without causality the function returns `end_of_block`, so that
// a few of the keys may belong to other documents.
template <typename Stored>
__device__ uint32_t end_of_warp_keys(const Head<Stored>& head, uint32_t first_query, uint32_t count,
                                     uint32_t end_of_block) {
  if (first_query >= head.T) return 0;
  return head.causal != 0 ? static_cast<uint32_t>(minimum(head.T, uint64_t{first_query} + count)) : end_of_block;
}
// Returns one past the last key that all queries from first_query on see. Considers only the last
// key that each query sees, not the first.
template <typename Stored>
__device__ uint32_t end_of_common_keys(const Head<Stored>& head, uint32_t first_query) {
  if (first_query >= head.T) return 0;
  return head.causal != 0 ? first_query + 1 : end_of_document(head, first_query);
}
// Returns the first query that may see a key from first_key on. Without causality, rounds the query
// down to a multiple of `tile`.
template <typename Stored>
__device__ uint32_t first_tile_of_queries(const Head<Stored>& head, uint32_t first_key, uint32_t tile) {
  return head.causal != 0 ? first_key : head.start(first_key) / tile * tile;
}

// Returns four bits: bit n is set if t sees key s + n. Returns 0 if t is not before T.
template <typename Stored>
__device__ uint32_t seen_bits(const Head<Stored>& head, uint32_t t, uint32_t s) {
  if (t >= head.T) return 0;
  const uint32_t start = head.start(t);
  uint32_t bits = 0;
  REPRISE_UNROLL
  for (uint32_t n = 0; n < 4; ++n) bits |= uint32_t{head.first_seeing(s + n) <= t && start <= s + n} << n;
  return bits;
}

// Returns the factor by which dropout multiplies the weights that it keeps.
__device__ inline float kept_factor(float dropout) { return 1.0f / (1.0f - dropout); }

// The dropout mask of one head's weights.
struct WeightMask {
  uint64_t seed = 0, first_row;  // first_row: the head's first row of weights, numbered as the elements of lse
  uint32_t step = 0, micro_batch = 0, stream, threshold = 0, T;
  float kept = 1;  // factor of a kept weight
  bool drops;

  template <typename Args, typename Stored>
  __device__ WeightMask(const Args& args, const Head<Stored>& head)
      : first_row(head.lse), stream(args.attention.stream), T(head.T) {
    const float p = args.attention.dropout;
    drops = p > 0;
    if (!drops) return;
    seed = args.scalars->seed, step = args.scalars->step, micro_batch = args.scalars->micro_batch;
    threshold = dropout_threshold(p);
    kept = kept_factor(p);
  }
  // Returns four bits: bit j is set if dropout keeps weight (t, s + j). The four random words may
  // be in two Philox blocks.
  __device__ uint32_t kept_bits(uint32_t t, uint32_t s) const {
    const uint64_t element = (first_row + t) * T + s;
    const uint32_t before = element % 4;
    uint32_t bits = block_bits(element / 4);
    if (before != 0) bits |= block_bits(element / 4 + 1) << 4;
    return bits >> before & 15;
  }
  __device__ float factor(uint32_t bits, uint32_t j) const { return (bits >> j & 1) != 0 ? kept : 0.0f; }

 private:
  __device__ uint32_t block_bits(uint64_t block) const {
    const PhiloxBlock words = philox_mask(seed, step, micro_batch, stream, block);
    uint32_t bits = 0;
    REPRISE_UNROLL
    for (uint32_t j = 0; j < 4; ++j) bits |= uint32_t{words.word[j] >= threshold} << j;
    return bits;
  }
};

}  // namespace reprise
