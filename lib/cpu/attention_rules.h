// The tiles of attention on a worker's stack, and the scratch of its backward: planner, checker and kernel agree on them here.
#pragma once

#include "lib/backend_rules.h"
#include "lib/cpu/cpu_size.h"
#include "lib/cpu/partition.h"
#include "lib/stack_room.h"

namespace reprise {

// How q, k and v that are stored as bf16 are multiplied: widened to f32 (attention_tiles.h), or as pairs by vectors (attention_pairs.h) or by a matrix
// unit (attention_matrix.h).
enum class AttentionProduct : uint8_t { kWidened, kVectors, kMatrix };

// Of heads of D channels, on a machine with this tile for pairs of bf16, or without one. An odd row would begin inside a pair. A matrix unit must pay for
// rounding and packing 64 x 64 weights, whatever D is: at 16 channels that takes about as long as vectors of f32 take for both products. And it
// multiplies whole groups of depths: AMX 32 channels or zeros in their place.
constexpr AttentionProduct attention_product(const GemmTile* pairs, uint64_t D) {
  if (pairs == nullptr || D % 2 != 0) return AttentionProduct::kWidened;
  if (pairs->group() == 1) return AttentionProduct::kVectors;
  return D >= larger(16, 2 * uint64_t{pairs->group()}) ? AttentionProduct::kMatrix : AttentionProduct::kWidened;
}

// delta[B,heads,T] = sum over a head's channels of dy * y, one float per entry of lse.
constexpr uint64_t attention_delta_bytes(uint64_t lse_elements) { return align_up(lse_elements * sizeof(float)); }

// A group of the backward is the query heads that share a head of keys and values. A group of one head is one task; one of several heads, of which
// there are few, is two, which take its tiles of keys in turns. Each task sums dq of its own in f32: the first in dqkv where that is f32, the others in rooms of scratch. Groups with rooms are worked
// so many heads at a time, or one by one.
constexpr uint64_t kAttentionHeadsAtOnce = 16;
constexpr uint32_t attention_shares(uint64_t heads_of_group) { return heads_of_group > 1 ? 2 : 1; }
constexpr uint32_t attention_rooms(uint64_t heads_of_group, DType stored) {
  return attention_shares(heads_of_group) - (stored == DType::kBf16 ? 0 : 1);
}
constexpr uint64_t attention_groups_at_once(uint64_t groups, uint64_t heads_of_group, DType stored) {
  const uint64_t most = heads_of_group < kAttentionHeadsAtOnce ? kAttentionHeadsAtOnce / heads_of_group : 1;
  return attention_rooms(heads_of_group, stored) > 0 && groups > most ? most : groups;
}

// Of y[B,T,C] and lse[B,heads,T].
constexpr uint64_t attention_backward_scratch_bytes(const Tensor& y, const Tensor& lse, const AttentionAttribute& attention) {
  const uint64_t groups = uint64_t{y.shape[0]} * attention.kv_heads, heads_of_group = attention.heads / attention.kv_heads;
  const uint64_t room_bytes = y.elements() / groups * sizeof(float);
  const uint64_t rooms = attention_groups_at_once(groups, heads_of_group, y.dtype) * attention_rooms(heads_of_group, y.dtype);
  return attention_delta_bytes(lse.elements()) + rooms * room_bytes;
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
  const uint64_t softmax_bytes = size == CpuSize::kSmall ? 704 : 576;  // a small core's frame has no room to spare
  return softmax_bytes + stack_room_bytes(4 * tiles) + stack_room_bytes(D * kMostPointerBytes);
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
