// How batch-norm and group-norm split their sums over rows, and the scratch of that split. Planner,
// checker and kernel share these definitions.
#pragma once

#include "lib/backend_rules.h"
#include "lib/cpu/partition.h"

namespace reprise {

// Returns the split of rows into chunks, which are summed separately and then combined in order.
// There are enough chunks for the workers, and few enough that combining is cheap.
constexpr Partition batch_norm_chunks(uint64_t M, uint64_t C) {
  return split_at_most(M, larger(4, smaller(32, 16384 / larger(C, 1))), 32);
}

// Returns the scratch bytes: two doubles and a float for each chunk and channel.
constexpr uint64_t batch_norm_statistics_scratch_bytes(uint64_t M, uint64_t C) {
  return batch_norm_chunks(M, C).count() * C * (2 * sizeof(double) + sizeof(float));
}
// Returns the scratch bytes: two doubles for each chunk and channel, and three floats for each
// channel.
constexpr uint64_t batch_norm_backward_scratch_bytes(uint64_t M, uint64_t C) {
  return batch_norm_chunks(M, C).count() * 2 * C * sizeof(double) + 3 * C * sizeof(float);
}

// Returns the bytes of the counters, one for each chunk of a convolution's output
// (output_statistics.h). A convolution's scratch has the convolution's own part first, then these
// counters, then the scratch of batch_norm.statistics.
constexpr uint64_t output_statistics_counts_bytes(uint64_t M, uint64_t C) {
  return align_up(batch_norm_chunks(M, C).count() * sizeof(uint32_t));
}
// True if a counter can hold the elements of a chunk. Counters have 32 bits, because a small core
// has no larger atomic numbers.
constexpr bool output_statistics_fit(uint64_t M, uint64_t C) {
  return batch_norm_chunks(M, C).size <= 0xffffffffu / larger(C, 1);
}
constexpr uint64_t output_statistics_scratch_bytes(uint64_t M, uint64_t C) {
  return output_statistics_counts_bytes(M, C) + align_up(batch_norm_statistics_scratch_bytes(M, C));
}

// Returns the split of a sample's pixels into chunks for group-norm. There is one chunk if there
// are enough samples for the workers.
constexpr Partition group_norm_chunks(uint64_t N, uint64_t HW) {
  return split_at_most(HW, divide_up(32, larger(N, 1)), 32);
}

// Layout of group-norm's scratch. Each chunk of each sample has the sums that batch-norm needs: two
// doubles and a float for each channel. Then each sample has vectors of one float for each channel:
// two in the forward, three in the backward.
struct GroupNormScratch {
  uint64_t N, C;
  uint32_t chunks;  // chunks of each sample
  uint32_t floats;

  constexpr uint64_t sums(uint64_t n, uint32_t chunk) const { return (n * chunks + chunk) * 2 * C * sizeof(double); }
  constexpr uint64_t shift(uint64_t n, uint32_t chunk) const {
    return sums(N, 0) + (n * chunks + chunk) * C * sizeof(float);
  }
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
