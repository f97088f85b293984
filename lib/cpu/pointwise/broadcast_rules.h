// How the gradient of a broadcast factor or term is summed, with its scratch and stack. Planner,
// checker and kernel share these definitions.
#pragma once

#include "lib/backend_rules.h"
#include "lib/cpu/cpu_size.h"
#include "lib/cpu/partition.h"
#include "lib/stack_buffer.h"

namespace reprise {

// Columns of a segment whose sums a worker keeps at a time. Each column has its own sum, so the
// smaller value of a small core changes no bit. broadcast_chunks(), which decides bits, uses the
// large core's value on all cores.
constexpr uint64_t kBroadcastColumns = 128, kSmallBroadcastColumns = 32;
constexpr uint64_t broadcast_tile(CpuSize size) {
  return size == CpuSize::kSmall ? kSmallBroadcastColumns : kBroadcastColumns;
}

// Returns the split into chunks of a segment's uses, which are the rows of dy whose forward read
// that segment of b. There are several chunks only if segments and column tiles are too few for the
// workers.
constexpr Partition broadcast_chunks(const Broadcast& shape) {
  const uint64_t units = shape.segments() * divide_up(shape.columns, kBroadcastColumns);
  return split_at_most(shape.repeated(), divide_up(32, units), shape.columns == 1 ? 4096 : 32);
}

// Returns the scratch bytes: one double for each chunk and element of b, or 0 if there is one
// chunk.
constexpr uint64_t broadcast_scratch_bytes(const Broadcast& shape) {
  const uint64_t chunks = broadcast_chunks(shape).count();
  return chunks == 1 ? 0 : chunks * shape.segments() * shape.columns * sizeof(double);
}

template <typename K>
constexpr uint64_t broadcast_scratch(const ShapedCall& c) {
  return broadcast_scratch_bytes(contract::broadcast_of(c[K::kDy], c[K::kDb]));
}
// Returns the stack bytes of the column sums, in double and in f32. On a large core the kernel's
// frame has space for them.
template <typename K>
constexpr uint64_t small_broadcast_stack(const ShapedCall& c) {
  const uint64_t columns = smaller(contract::broadcast_of(c[K::kDy], c[K::kDb]).columns, kSmallBroadcastColumns);
  return stack_buffer_bytes(columns * sizeof(double)) + stack_buffer_bytes(columns * sizeof(float));
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
