// Scratch of DoRA: the adapter's matrices for the norms, and the sums of the magnitudes' gradient,
// split over rows. Planner, checker and kernels share these definitions.
#pragma once

#include "lib/backend_rules.h"
#include "lib/cpu/partition.h"

namespace reprise {

// Returns the scratch bytes: B times the scale, [K,R] or, if the weight is input_major, [R,K]; then
// A as f32, unless A is stored as f32.
constexpr uint64_t dora_norms_scratch_bytes(uint64_t C, uint64_t K, uint64_t R, DType a) {
  return (K * R + (a == DType::kF32 ? 0 : R * C)) * sizeof(float);
}

constexpr Partition dora_chunks(uint64_t M) { return split_at_most(M, 32, 32); }

// Returns the scratch bytes: one double for each chunk and output channel.
constexpr uint64_t dora_backward_scratch_bytes(uint64_t M, uint64_t K) {
  return dora_chunks(M).count() * K * sizeof(double);
}

constexpr void add_dora_rules(BackendRules& rules) {
  rules.of<DoraNorms>().weights = kEveryWeight;
  rules.of<DoraNorms>().scratch_bytes = [](const ShapedCall& c) {
    using A = DoraNorms;
    return dora_norms_scratch_bytes(c[A::kA].last_dimension(), c[A::kNorms].elements(), c[A::kB].last_dimension(),
                                    c[A::kA].dtype);
  };
  rules.of<DoraBackward>().scratch_bytes = [](const ShapedCall& c) -> uint64_t {
    using A = DoraBackward;
    return c.has(A::kDmagnitudes) ? dora_backward_scratch_bytes(c[A::kZ].leading_elements(), c[A::kZ].last_dimension())
                                  : 0;
  };
}

}  // namespace reprise
