// How the gradient of a repeated factor or term is summed, and the scratch that the split takes: planner, checker and kernel agree on it here.
#pragma once

#include "lib/backend_rules.h"
#include "lib/cpu/partition.h"

namespace reprise {

constexpr uint64_t kBroadcastColumns = 128;  // of a segment, whose sums a worker holds at once

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
constexpr void add_broadcast_rules(BackendRules& rules) {
  rules.of<MultiplyBackwardWeight>().scratch_bytes = broadcast_scratch<MultiplyBackwardWeight>;
  rules.of<BroadcastAddBackward>().scratch_bytes = broadcast_scratch<BroadcastAddBackward>;
}

}  // namespace reprise
