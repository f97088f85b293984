// A skeleton to copy (channel_gain.h): how the sum over rows is split into chunks, and its scratch.
// Planner, checker and kernel use the same functions.
#pragma once

#include "lib/cpu/partition.h"
#include "tests/skeleton/channel_gain.h"

namespace reprise {

// Returns the chunks in which M rows are summed. COPYING: they may depend only on the shape. If
// they depended on the number of workers, machines would give different bits.
constexpr Partition channel_gain_chunks(uint64_t M) { return split_at_most(M, 32, 32); }

// Returns the bytes of scratch: one double for each chunk and channel.
constexpr uint64_t channel_gain_backward_scratch_bytes(uint64_t M, uint64_t C) {
  return channel_gain_chunks(M).count() * C * sizeof(double);
}

// Returns the bytes of scratch for the backward. COPYING: a real family has
// `add_FAMILY_rules(BackendRules&)` instead, which sets rules.of<K>().scratch_bytes to such a
// function, and a line in cpu_rules.h. If a kernel has large objects on a worker's stack, it also
// sets .stack_bytes; tests/ops/stack_test.cpp measures them.
constexpr uint64_t channel_gain_scratch(const ShapedCall& c) {
  using A = ChannelGainBackward;
  return c.has(A::kDgain) ? channel_gain_backward_scratch_bytes(c[A::kX].leading_elements(), c[A::kX].last_dimension())
                          : 0;
}

}  // namespace reprise
