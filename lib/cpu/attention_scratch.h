// The tile of attention, and the scratch of its backward.
// Here because planner and kernel must agree on them, and the planner has no kernels.
// It must not know how a tile is computed.
#pragma once

#include "lib/op.h"

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

}  // namespace reprise
