// How batch-norm's sums over rows are split, and the scratch that the split takes: planner, checker and kernel agree on it here.
#pragma once

#include "lib/backend_rules.h"
#include "lib/cpu/partition.h"

namespace reprise {

// Chunks of rows that are summed by themselves, then combined in order: enough for the workers, few enough to cost
// little.
constexpr Partition batch_norm_chunks(uint64_t M, uint64_t C) {
  return split_at_most(M, larger(4, smaller(32, 16384 / larger(C, 1))), 32);
}

// Per chunk and channel two doubles and a float.
constexpr uint64_t batch_norm_statistics_scratch_bytes(uint64_t M, uint64_t C) {
  return batch_norm_chunks(M, C).count() * C * (2 * sizeof(double) + sizeof(float));
}
// Per chunk and channel two doubles; per channel three floats.
constexpr uint64_t batch_norm_backward_scratch_bytes(uint64_t M, uint64_t C) {
  return batch_norm_chunks(M, C).count() * 2 * C * sizeof(double) + 3 * C * sizeof(float);
}

// Statistics of what a convolution writes (output_statistics.h), behind the convolution's own scratch: a count for each chunk, then
// what batch_norm.statistics wants.
constexpr uint64_t output_statistics_counts_bytes(uint64_t M, uint64_t C) {
  return align_up(batch_norm_chunks(M, C).count() * sizeof(uint32_t));
}
// Whether the counts hold a chunk's elements: they have 32 bits, because a small core has no larger atomic numbers.
constexpr bool output_statistics_fit(uint64_t M, uint64_t C) { return batch_norm_chunks(M, C).size <= 0xffffffffu / larger(C, 1); }
constexpr uint64_t output_statistics_scratch_bytes(uint64_t M, uint64_t C) {
  return output_statistics_counts_bytes(M, C) + align_up(batch_norm_statistics_scratch_bytes(M, C));
}

constexpr void add_batch_norm_rules(BackendRules& rules) {
  rules.of<BatchNormStatistics>().scratch_bytes = [](const ShapedCall& c) {
    const Tensor& x = c[BatchNormStatistics::kX];
    return batch_norm_statistics_scratch_bytes(x.leading_elements(), x.last_dimension());
  };
  rules.of<BatchNormBackward>().scratch_bytes = [](const ShapedCall& c) {
    const Tensor& x = c[BatchNormBackward::kX];
    return batch_norm_backward_scratch_bytes(x.leading_elements(), x.last_dimension());
  };
  rules.of<NormReluBackward>().scratch_bytes = [](const ShapedCall& c) {
    const Tensor& x = c[NormReluBackward::kX];
    return batch_norm_backward_scratch_bytes(x.leading_elements(), x.last_dimension());
  };
}

}  // namespace reprise
