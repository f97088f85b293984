// The sizes of attention's tiles on a worker's stack, and of the scratch of its backward. Planner,
// checker and kernel share these definitions.
#pragma once

#include "lib/backend_rules.h"
#include "lib/cpu/cpu_size.h"
#include "lib/cpu/partition.h"
#include "lib/stack_buffer.h"

namespace reprise {

// How attention multiplies q, k and v that are stored as bf16: widened to f32 (attention_tiles.h),
// or as pairs. Pairs are multiplied by vectors (attention_pairs.h) or a matrix unit
// (attention_matrix.h).
enum class AttentionProduct : uint8_t { kWidened, kVectors, kMatrix };

// Returns how heads of D channels are multiplied. `pairs` is the machine's tile for pairs of bf16,
// or null. An odd D is widened, because every second row would begin inside a pair. For a matrix
// unit, 64 x 64 weights are rounded and packed, whatever D is. At 16 channels this takes about as
// long as both products in f32 by vectors, so heads with fewer channels are widened. A matrix unit
// also multiplies only whole groups of pairs. So heads with fewer channels than one group are
// widened, too: 32 channels for AMX.
constexpr AttentionProduct attention_product(const GemmTile* pairs, uint64_t D) {
  if (pairs == nullptr || D % 2 != 0) return AttentionProduct::kWidened;
  if (pairs->group() == 1) return AttentionProduct::kVectors;
  return D >= larger(16, 2 * uint64_t{pairs->group()}) ? AttentionProduct::kMatrix : AttentionProduct::kWidened;
}

// Returns the bytes of delta[B,heads,T] = sum over a head's channels of dy * y: one float for each
// entry of lse.
constexpr uint64_t attention_delta_bytes(uint64_t lse_elements) { return align_up(lse_elements * sizeof(float)); }

// A group of the backward is the query heads that share a head of keys and values. A group of one
// head is one task. A group of several heads is divided into two tasks, because there are few
// groups; the tasks process the group's tiles of keys alternately. Each task sums its dq in f32.
// The sums of a group's first task are in dqkv if dqkv is f32; all other sums are in buffers of the
// scratch. If buffers are needed, at most this many heads are processed at a time, or one group if
// it has more heads.
constexpr uint64_t kAttentionHeadsAtOnce = 16;
constexpr uint32_t attention_shares(uint64_t heads_of_group) { return heads_of_group > 1 ? 2 : 1; }
constexpr uint32_t attention_buffers(uint64_t heads_of_group, DType stored) {
  return attention_shares(heads_of_group) - (stored == DType::kBf16 ? 0 : 1);
}
constexpr uint64_t attention_groups_at_once(uint64_t groups, uint64_t heads_of_group, DType stored) {
  const uint64_t maximum = heads_of_group < kAttentionHeadsAtOnce ? kAttentionHeadsAtOnce / heads_of_group : 1;
  return attention_buffers(heads_of_group, stored) > 0 && groups > maximum ? maximum : groups;
}

// Returns the bytes of the backward's scratch, for y[B,T,C] and lse[B,heads,T].
constexpr uint64_t attention_backward_scratch_bytes(const Tensor& y, const Tensor& lse,
                                                    const AttentionAttribute& attention) {
  const uint64_t groups = uint64_t{y.shape[0]} * attention.kv_heads,
                 heads_of_group = attention.heads / attention.kv_heads;
  const uint64_t space_bytes = y.elements() / groups * sizeof(float);
  const uint64_t buffers =
      attention_groups_at_once(groups, heads_of_group, y.dtype) * attention_buffers(heads_of_group, y.dtype);
  return attention_delta_bytes(lse.elements()) + buffers * space_bytes;
}

// Returns the floats of one tile: `tile` positions of a head of D channels. D is rounded up to
// whole panels of the widest vector level.
constexpr uint64_t attention_head_floats(uint64_t D, uint32_t tile) {
  const uint64_t panel = smaller(32, tile / 2);
  return tile * (divide_up(D, panel) * panel);
}
// Number of tiles of a head on a worker's stack. If rows are stored as bf16, two more tiles contain
// the rows widened to f32.
template <typename Stored>
inline constexpr uint32_t kForwardTiles = kStoredAs<Stored> == DType::kBf16 ? 4 : 2;
template <typename Stored>
inline constexpr uint32_t kBackwardTiles = kStoredAs<Stored> == DType::kBf16 ? 7 : 5;
// Returns the stack bytes of a worker: the tiles of a head, the tiles of scores, a pointer for each
// channel, and the softmax's arrays.
constexpr uint64_t attention_stack_bytes(const Tensor& y, const AttentionAttribute& attention, uint32_t head_tiles,
                                         uint32_t score_tiles, CpuSize size) {
  const uint64_t D = y.last_dimension() / attention.heads, tile = blocks_of(size).attention_tile;
  const uint64_t tiles =
      head_tiles * attention_head_floats(D, blocks_of(size).attention_tile) + score_tiles * tile * tile;
  const uint64_t softmax_bytes = size == CpuSize::kSmall ? 704 : 576;  // the small core's frame bytes cover less
  return softmax_bytes + stack_buffer_bytes(4 * tiles) + stack_buffer_bytes(D * kMaxPointerBytes);
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
    return attention_backward_scratch_bytes(c[AttentionBackward::kY], c[AttentionBackward::kLse],
                                            c.attribute<AttentionAttribute>());
  };
}

}  // namespace reprise
