// How the gradient of a repeated factor or term is summed, and the scratch and stack that it takes: planner, checker and kernel agree on it here.
#pragma once

#include "lib/backend_rules.h"
#include "lib/cpu/cpu_size.h"
#include "lib/cpu/partition.h"
#include "lib/stack_room.h"

namespace reprise {

// Columns of a segment whose sums a worker holds at once. Each column has a sum of its own, so a small core's fewer change no bit; how uses are split,
// which decides bits, follows from a large core's.
constexpr uint64_t kBroadcastColumns = 128, kSmallBroadcastColumns = 32;
constexpr uint64_t broadcast_tile(CpuSize size) { return size == CpuSize::kSmall ? kSmallBroadcastColumns : kBroadcastColumns; }

// Of a segment's uses: split only where segments and tiles of columns are too few for the workers.
constexpr Partition broadcast_chunks(const Broadcast& shape) {
  const uint64_t units = shape.segments() * divide_up(shape.columns, kBroadcastColumns);
  return split_at_most(shape.repeated(), divide_up(32, units), shape.columns == 1 ? 4096 : 32);
}

// A double for each chunk and element of b, where there is more than one chunk.
constexpr uint64_t broadcast_scratch_bytes(const Broadcast& shape) {
  const uint64_t chunks = broadcast_chunks(shape).count();
  return chunks == 1 ? 0 : chunks * shape.segments() * shape.columns * sizeof(double);
}

template <typename K>
constexpr uint64_t broadcast_scratch(const ShapedCall& c) {
  return broadcast_scratch_bytes(contract::broadcast_of(c[K::kDy], c[K::kDb]));
}
// A column's sums, in double and in f32; a large core's frame has room for them.
template <typename K>
constexpr uint64_t small_broadcast_stack(const ShapedCall& c) {
  const uint64_t columns = smaller(contract::broadcast_of(c[K::kDy], c[K::kDb]).columns, kSmallBroadcastColumns);
  return stack_room_bytes(columns * sizeof(double)) + stack_room_bytes(columns * sizeof(float));
}
template <CpuSize kSize>
constexpr void add_broadcast_rules(BackendRules& rules) {
  rules.of<MultiplyBackwardWeight>().scratch_bytes = broadcast_scratch<MultiplyBackwardWeight>;
  rules.of<BroadcastAddBackward>().scratch_bytes = broadcast_scratch<BroadcastAddBackward>;
  if (kSize == CpuSize::kLarge) return;
  rules.of<MultiplyBackwardWeight>().stack_bytes = small_broadcast_stack<MultiplyBackwardWeight>;
  rules.of<BroadcastAddBackward>().stack_bytes = small_broadcast_stack<BroadcastAddBackward>;
}

}  // namespace reprise
