// One head of attention: where its rows lie, which keys a query sees, and which weights dropout keeps.
// Here because the form in f32 (attention.cu) and the forms on tensor cores (attention_forward_mma.cu, attention_backward_mma.cu)
// read the same heads.
#pragma once

#include <cmath>

#include "cuda/cuda_kernels.h"
#include "cuda/device_math.h"
#include "cuda/grid.h"
#include "cuda/reduce.h"
#include "lib/rng.h"

namespace reprise {

// `count` rows of a head: D columns of each.
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
  uint32_t row, out;      // elements from one position to the next: of q, k and v; of y and dy
  uint64_t q, k, v;       // where the head begins in a position's columns, from the sequence's first position on
  uint64_t y, lse;        // where it begins in y and in lse
  const int32_t* starts;  // [T] or null
  uint32_t window;        // 0: none
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
  // The next query head; it must have the same keys and values.
  __device__ void advance() { q += D, y += D, lse += T; }

  // From position `first` on.
  __device__ HeadRows<Stored> rows(const Stored* x, uint64_t begin, uint32_t first) const {
    return {x + begin + uint64_t{first} * row, row, T - first, D};
  }
  __device__ HeadRows<Stored> out_rows(const Stored* x, uint32_t first) const { return {x + y + uint64_t{first} * out, out, T - first, D}; }

  // Whether some query does not see all positions before it.
  __device__ bool hides() const { return starts != nullptr || window != 0; }
  // The first position that t sees. A document's start outside [0,t] is a fault that is noted elsewhere; here it must only do no harm.
  __device__ uint32_t start(uint32_t t) const {
    const uint32_t of_window = window != 0 && t >= window ? t - window + 1 : 0;
    if (starts == nullptr) return of_window;
    const int32_t start = starts[t];
    const uint32_t of_document = start < 0 ? 0 : (static_cast<uint32_t>(start) > t ? t : static_cast<uint32_t>(start));
    return of_document > of_window ? of_document : of_window;
  }
  // The first position that sees s, which need not exist: t sees s where start(t) <= s and first_seeing(s) <= t. Without causality a position
  // sees those by which it is seen.
  __device__ uint32_t first_seeing(uint32_t s) const { return causal != 0 || s >= T ? s : start(s); }
  // Behind the last query that sees a key before `end_of_keys`, as far as the window says.
  __device__ uint32_t end_of_seeing(uint32_t end_of_keys) const {
    return window == 0 ? T : static_cast<uint32_t>(least(T, uint64_t{end_of_keys} + window));
  }
};

// The first and the last of the starts of `count` queries, of which at least one is before T; the same in every lane of a warp.
struct StartRange {
  uint32_t first = 0, last = 0;

  template <typename Stored>
  __device__ StartRange(const Head<Stored>& head, uint32_t first_query, uint32_t count) {
    if (head.starts == nullptr) {  // of windows alone
      first = head.start(first_query), last = head.start(static_cast<uint32_t>(least(head.T, uint64_t{first_query} + count)) - 1);
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

// Behind the last position of the document that holds position t; the same in every lane of a warp.
template <typename Stored>
__device__ uint32_t end_of_document(const Head<Stored>& head, uint32_t t) {
  if (head.starts == nullptr) return head.T;
  for (uint32_t first = t + 1; first < head.T; first += kWarpLanes) {
    const uint32_t s = first + lane_index();
    const uint32_t others = __ballot_sync(kAllLanes, s < head.T && head.starts[s] != head.starts[t]);
    if (others == 0) continue;
    uint32_t lane = 0;
    while ((others >> lane & 1) == 0) ++lane;  // nvcc takes std::countr_zero and compiles it to 32
    return first + lane;
  }
  return head.T;
}
// Behind the last key that some of `count` queries see, of which at least one is before T.
template <typename Stored>
__device__ uint32_t end_of_keys(const Head<Stored>& head, uint32_t first_query, uint32_t count) {
  const uint32_t end = static_cast<uint32_t>(least(head.T, uint64_t{first_query} + count));
  return head.causal != 0 ? end : end_of_document(head, end - 1);
}
// The same of a warp's queries, whose block sees the keys before `end_of_block`; 0 where none is before T. Without causality those of the block,
// of which a few may be other documents'.
template <typename Stored>
__device__ uint32_t end_of_warp_keys(const Head<Stored>& head, uint32_t first_query, uint32_t count, uint32_t end_of_block) {
  if (first_query >= head.T) return 0;
  return head.causal != 0 ? static_cast<uint32_t>(least(head.T, uint64_t{first_query} + count)) : end_of_block;
}
// Behind the last key that all of some queries from first_query on may see, as far as their ends say.
template <typename Stored>
__device__ uint32_t end_of_common_keys(const Head<Stored>& head, uint32_t first_query) {
  if (first_query >= head.T) return 0;
  return head.causal != 0 ? first_query + 1 : end_of_document(head, first_query);
}
// The first query that may see some of the keys from first_key on, in whole `tile`s.
template <typename Stored>
__device__ uint32_t first_tile_of_queries(const Head<Stored>& head, uint32_t first_key, uint32_t tile) {
  return head.causal != 0 ? first_key : head.start(first_key) / tile * tile;
}

// Bit n: whether t sees key s + n, of four; none where t does not exist.
template <typename Stored>
__device__ uint32_t seen_bits(const Head<Stored>& head, uint32_t t, uint32_t s) {
  if (t >= head.T) return 0;
  const uint32_t start = head.start(t);
  uint32_t bits = 0;
  REPRISE_UNROLL
  for (uint32_t n = 0; n < 4; ++n) bits |= uint32_t{head.first_seeing(s + n) <= t && start <= s + n} << n;
  return bits;
}

// What a weight is multiplied with that dropout keeps.
__device__ inline float kept_factor(float dropout) { return 1.0f / (1.0f - dropout); }

// Dropout of the weights.
struct WeightMask {
  uint64_t seed = 0, first_row;  // of the node's rows of weights, in the order of lse
  uint32_t step = 0, micro_batch = 0, stream, threshold = 0, T;
  float kept = 1;  // what a kept weight is multiplied with
  bool drops;

  template <typename Args, typename Stored>
  __device__ WeightMask(const Args& args, const Head<Stored>& head) : first_row(head.lse), stream(args.attention.stream), T(head.T) {
    const float p = args.attention.dropout;
    drops = p > 0;
    if (!drops) return;
    seed = args.scalars->seed, step = args.scalars->step, micro_batch = args.scalars->micro_batch;
    threshold = dropout_threshold(p);
    kept = kept_factor(p);
  }
  // Bit j: whether weight (t, s + j) is kept, of four. Their words may lie in two blocks of four.
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
