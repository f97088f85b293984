// Batch-norm's statistics of what a convolution writes, taken chunk by chunk by the worker that completes a chunk.
// Here so that the rows are summed while a cache still has them; the chunks and sums are batch_norm.statistics' own, so the bits are.
// It must not know how the rows are computed, nor in which order.
#pragma once

#include "lib/backend.h"
#include "lib/cpu/batch_norm_scratch.h"

namespace reprise {

// Behind the convolution's own scratch: a count for each chunk, then what batch_norm.statistics wants.
constexpr uint64_t output_statistics_counts_bytes(uint64_t M, uint64_t C) {
  return align_up(batch_norm_chunks(M, C).count() * sizeof(uint64_t));
}
constexpr uint64_t output_statistics_scratch_bytes(uint64_t M, uint64_t C) {
  return output_statistics_counts_bytes(M, C) + align_up(batch_norm_statistics_scratch_bytes(M, C));
}

template <typename Stored>
class OutputStatistics {
 public:
  // args.x is what will be written; args.scratch has output_statistics_scratch_bytes().
  explicit OutputStatistics(const BatchNormStatisticsArgsOf<Stored>& args);

  // `columns` elements of each of rows [begin, end) have been written, by this worker. Every element is told once.
  void written(uint64_t begin, uint64_t end, uint64_t columns) const;

  // When all has been written: mean and rstd.
  void finish(const Workers& workers) const;

 private:
  BatchNormStatisticsArgsOf<Stored> args_;
  uint64_t* missing_;  // elements of each chunk that are not written yet
};

}  // namespace reprise
