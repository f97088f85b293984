// The tiles of attention on a worker's stack, and the scratch of its backward: planner, checker and kernel agree on them here.
#pragma once

#include "lib/backend_rules.h"
#include "lib/cpu/cpu_size.h"
#include "lib/cpu/partition.h"
#include "lib/cpu/stack_room.h"
#include "lib/cpu/vector_level.h"

namespace reprise {

// Whether q, k and v that are stored as bf16, of D channels a head, are multiplied by pairs (attention_pairs.h). A matrix unit's level is that of a
// core whose vectors multiply pairs slower than f32.
constexpr bool attention_multiplies_pairs(VectorLevel level, uint64_t D) {
  return level == VectorLevel::kAvx512Bf16 && D % 2 == 0;
}

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

// A tile of a head of D channels, in whole panels of the widest level.
constexpr uint64_t attention_head_floats(uint64_t D, uint32_t tile) {
  const uint64_t panel = smaller(32, tile / 2);
  return tile * (divide_up(D, panel) * panel);
}
// Tiles of a head that a worker holds: rows stored as bf16 are widened into tiles of their own.
template <typename Stored>
inline constexpr uint32_t kForwardTiles = kStoredAs<Stored> == DType::kBf16 ? 4 : 2;
template <typename Stored>
inline constexpr uint32_t kBackwardTiles = kStoredAs<Stored> == DType::kBf16 ? 7 : 5;
// Of a worker's stack: so many tiles of a head, and of scores, a pointer for each channel, and the softmax's arrays.
constexpr uint64_t attention_stack_bytes(const Tensor& y, const AttentionAttribute& attention, uint32_t head_tiles, uint32_t score_tiles,
                                         CpuSize size) {
  const uint64_t D = y.last_dimension() / attention.heads, tile = blocks_of(size).attention_tile;
  const uint64_t tiles = head_tiles * attention_head_floats(D, blocks_of(size).attention_tile) + score_tiles * tile * tile;
  const uint64_t softmax_bytes = size == CpuSize::kSmall ? 656 : 576;  // a small core's frame has no room to spare
  return softmax_bytes + stack_room_bytes(4 * tiles) + stack_room_bytes(D * sizeof(const float*));
}

template <CpuSize kSize>
constexpr void add_attention_rules(BackendRules& rules) {
  rules.of<AttentionForward>().stack_bytes = [](const ShapedCall& c) {
    const Tensor& y = c[AttentionForward::kY];
    const uint32_t head_tiles = y.dtype == DType::kBf16 ? kForwardTiles<Bf16> : kForwardTiles<float>;
    return attention_stack_bytes(y, c.attribute<AttentionAttribute>(), head_tiles, 1, kSize);
  };
  rules.of<AttentionBackward>().stack_bytes = [](const ShapedCall& c) {
    const Tensor& y = c[AttentionBackward::kY];
    const uint32_t head_tiles = y.dtype == DType::kBf16 ? kBackwardTiles<Bf16> : kBackwardTiles<float>;
    return attention_stack_bytes(y, c.attribute<AttentionAttribute>(), head_tiles, 2, kSize);
  };
  rules.of<AttentionBackward>().scratch_bytes = [](const ShapedCall& c) {
    return attention_backward_scratch_bytes(c[AttentionBackward::kY], c[AttentionBackward::kLse], c.attribute<AttentionAttribute>());
  };
}

}  // namespace reprise
