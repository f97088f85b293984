// The tile of attention, and the scratch of its backward: planner, checker and kernel agree on them here.
#pragma once

#include "lib/backend_rules.h"

namespace reprise {

constexpr uint32_t kAttentionTile = 64;  // queries, and keys, of a tile of scores

// delta[B,heads,T] = sum over a head's channels of dy * y, one float per entry of lse.
constexpr uint64_t attention_delta_bytes(uint64_t lse_elements) { return align_up(lse_elements * sizeof(float)); }

// A task of the backward is a group: the query heads that share a head of keys and values. Where dqkv is stored as bf16, dq of the
// groups in work is summed in f32: of so many heads at a time, or of one group.
constexpr uint64_t kAttentionHeadsAtOnce = 16;
constexpr uint64_t attention_tasks(uint64_t groups, uint64_t heads_of_group, DType stored) {
  const uint64_t most = heads_of_group < kAttentionHeadsAtOnce ? kAttentionHeadsAtOnce / heads_of_group : 1;
  return stored == DType::kBf16 && groups > most ? most : groups;
}

// Of y[B,T,C] and lse[B,heads,T].
constexpr uint64_t attention_backward_scratch_bytes(const Tensor& y, const Tensor& lse, const AttentionAttribute& attention) {
  const uint64_t delta_bytes = attention_delta_bytes(lse.elements());
  if (y.dtype != DType::kBf16) return delta_bytes;
  const uint64_t groups = uint64_t{y.shape[0]} * attention.kv_heads;
  const uint64_t group_bytes = y.elements() / groups * sizeof(float);
  return delta_bytes + attention_tasks(groups, attention.heads / attention.kv_heads, y.dtype) * group_bytes;
}

// Of a worker's stack: so many tiles of a whole head, and of scores. Rows stored as bf16 are widened into tiles of their own.
constexpr uint64_t attention_stack_bytes(uint64_t head_tiles, uint64_t score_tiles) {
  return 4 * uint64_t{kAttentionTile} * (head_tiles * kAttentionMaxHead + score_tiles * kAttentionTile);
}

constexpr void add_attention_rules(BackendRules& rules) {
  rules.of<AttentionForward>().stack_bytes = [](const ShapedCall& c) {
    return attention_stack_bytes(c[AttentionForward::kY].dtype == DType::kBf16 ? 4 : 2, 1);
  };
  rules.of<AttentionBackward>().stack_bytes = [](const ShapedCall& c) {
    return attention_stack_bytes(c[AttentionBackward::kY].dtype == DType::kBf16 ? 7 : 5, 2);
  };
  rules.of<AttentionBackward>().scratch_bytes = [](const ShapedCall& c) {
    return attention_backward_scratch_bytes(c[AttentionBackward::kY], c[AttentionBackward::kLse], c.attribute<AttentionAttribute>());
  };
}

}  // namespace reprise
