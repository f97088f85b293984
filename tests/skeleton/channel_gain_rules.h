// A skeleton to copy (channel_gain.h): how the sum over rows is split, and the scratch that the split takes. Planner, checker and kernel
// agree on it here.
#pragma once

#include "lib/cpu/partition.h"
#include "tests/skeleton/channel_gain.h"

namespace reprise {

// COPYING: the split is a function of the shape. One that asks how many workers there are gives other bits on another machine.
constexpr Partition channel_gain_chunks(uint64_t M) { return split_at_most(M, 32, 32); }

// A double for each chunk and channel.
constexpr uint64_t channel_gain_backward_scratch_bytes(uint64_t M, uint64_t C) {
  return channel_gain_chunks(M).count() * C * sizeof(double);
}

// COPYING: a real family has `add_FAMILY_rules(BackendRules&)` instead, with rules.of<K>().scratch_bytes set to such a function, and a
// line in cpu_rules.h. A kernel that holds more than a frame on a worker's stack sets .stack_bytes too; tests/ops/stack_test.cpp measures
// it.
constexpr uint64_t channel_gain_scratch(const ShapedCall& c) {
  using A = ChannelGainBackward;
  return c.has(A::kDgain) ? channel_gain_backward_scratch_bytes(c[A::kX].leading_elements(), c[A::kX].last_dimension()) : 0;
}

}  // namespace reprise
