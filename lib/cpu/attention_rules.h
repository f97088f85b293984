// The tile of attention, and the scratch of its backward: planner, checker and kernel agree on them here.
#pragma once

#include "lib/backend_rules.h"

namespace reprise {

constexpr uint32_t kAttentionTile = 64;  // queries, and keys, of a tile of scores

// delta[B,heads,T] = sum over a head's channels of dy * y, one float per entry of lse.
constexpr uint64_t attention_delta_bytes(uint64_t lse_elements) { return align_up(lse_elements * sizeof(float)); }

// Where dqkv is stored as bf16, dq of the heads in work is summed in f32: of so many heads at a time.
constexpr uint64_t kAttentionHeadsAtOnce = 16;
constexpr uint64_t attention_tasks(uint64_t heads, DType stored) {
  return stored == DType::kBf16 && heads > kAttentionHeadsAtOnce ? kAttentionHeadsAtOnce : heads;
}

// Of y[B,T,C] and lse[B,heads,T].
constexpr uint64_t attention_backward_scratch_bytes(const Tensor& y, const Tensor& lse) {
  const uint64_t heads = uint64_t{lse.shape[0]} * lse.shape[1];
  const uint64_t head_bytes = heads == 0 ? 0 : y.elements() / heads * sizeof(float);
  return attention_delta_bytes(lse.elements()) + (y.dtype == DType::kBf16 ? attention_tasks(heads, y.dtype) * head_bytes : 0);
}

// Of a worker's stack: so many tiles of a whole head, and of scores. Rows stored as bf16 are widened into tiles of their own.
constexpr uint64_t attention_stack_bytes(uint64_t head_tiles, uint64_t score_tiles) {
  return 4 * uint64_t{kAttentionTile} * (head_tiles * kAttentionMaxHead + score_tiles * kAttentionTile);
}

constexpr void add_attention_rules(BackendRules& rules) {
  rules.of<AttentionForward>().stack_bytes = [](const ShapedCall& c) {
    return attention_stack_bytes(c[AttentionForward::kY].dtype == DType::kBf16 ? 4 : 1, 1);
  };
  rules.of<AttentionBackward>().stack_bytes = [](const ShapedCall& c) {
    return attention_stack_bytes(c[AttentionBackward::kY].dtype == DType::kBf16 ? 7 : 2, 2);
  };
  rules.of<AttentionBackward>().scratch_bytes = [](const ShapedCall& c) {
    return attention_backward_scratch_bytes(c[AttentionBackward::kY], c[AttentionBackward::kLse]);
  };
}

}  // namespace reprise
