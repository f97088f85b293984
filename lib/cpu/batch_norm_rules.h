// How the sums over rows of batch-norm and group-norm are split, and the scratch that the split takes: planner, checker and kernel agree on it here.
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

// Group-norm's sums over a sample's pixels are split only where there are too few samples for the workers.
constexpr Partition group_norm_chunks(uint64_t N, uint64_t HW) { return split_at_most(HW, divide_up(32, larger(N, 1)), 32); }

// Where its scratch holds what is its own of each chunk and sample. It has what a batch-norm has of a chunk, two doubles and a float for each
// channel, and for each sample and channel some floats: two forward, three backward.
struct GroupNormScratch {
  uint64_t N, C;
  uint32_t chunks;  // of a sample
  uint32_t floats;

  constexpr uint64_t sums(uint64_t n, uint32_t chunk) const { return (n * chunks + chunk) * 2 * C * sizeof(double); }
  constexpr uint64_t shift(uint64_t n, uint32_t chunk) const { return sums(N, 0) + (n * chunks + chunk) * C * sizeof(float); }
  constexpr uint64_t vector(uint64_t n, uint32_t i) const { return shift(N, 0) + (n * floats + i) * C * sizeof(float); }
  constexpr uint64_t bytes() const { return vector(N, 0); }
};
constexpr GroupNormScratch group_norm_scratch(uint64_t N, uint64_t HW, uint64_t C, Pass pass) {
  return {N, C, group_norm_chunks(N, HW).count(), pass == Pass::kForward ? 2u : 3u};
}

template <typename K>
constexpr uint64_t group_norm_scratch_bytes(const ShapedCall& c) {
  const Tensor& x = c[K::kX];
  return group_norm_scratch(x.shape[0], uint64_t{x.shape[1]} * x.shape[2], x.shape[3], c.pass).bytes();
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
  rules.of<GroupNormForward>().scratch_bytes = group_norm_scratch_bytes<GroupNormForward>;
  rules.of<GroupNormBackward>().scratch_bytes = group_norm_scratch_bytes<GroupNormBackward>;
}

}  // namespace reprise
