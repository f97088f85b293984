// Batch-norm's statistics of what a convolution writes, taken chunk by chunk by the worker that completes a chunk.
// Here so that the rows are summed while a cache still has them; the chunks and sums are batch_norm.statistics' own, so the bits are.
// It must not know how the rows are computed, nor in which order.
#pragma once

#include "lib/backend.h"

namespace reprise {

// Defined in batch_norm.cpp, whose sums it takes.
template <typename Stored>
class OutputStatistics {
 public:
  // args.x is what will be written; args.scratch has output_statistics_scratch_bytes().
  OutputStatistics(const KernelContext& context, const BatchNormStatisticsArgsOf<Stored>& args);

  // `columns` elements of each of rows [begin, end) have been written, by this worker. Every element is told once.
  void written(uint64_t begin, uint64_t end, uint64_t columns) const;

  // When all has been written: mean and rstd.
  void finish() const;

 private:
  const KernelContext& context_;
  BatchNormStatisticsArgsOf<Stored> args_;
  uint32_t* missing_;  // elements of each chunk that are not written yet
};

}  // namespace reprise
