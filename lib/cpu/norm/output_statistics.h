// Batch-norm's statistics of a convolution's output, computed chunk by chunk while the rows are
// still in a cache. The worker that completes a chunk sums it. Chunks and sums are equal to those
// of batch_norm.statistics, and so are the bits. The bits do not depend on how, or in which order,
// the rows are computed.
#pragma once

#include "lib/backend.h"

namespace reprise {

// Accumulates the statistics of one output. The functions are in batch_norm.cpp, whose sums they
// use.
template <typename Stored>
class OutputStatistics {
 public:
  // Starts with no element written. args.x is the output that will be written; args.scratch has
  // output_statistics_scratch_bytes(). `context` must outlive the object.
  OutputStatistics(const KernelContext& context, const BatchNormStatisticsArgsOf<Stored>& args);

  // Records that this worker has written `columns` elements of each of rows [begin, end). Sums each
  // chunk that is now complete. Each element must be reported exactly once.
  void written(uint64_t begin, uint64_t end, uint64_t columns) const;

  // Writes mean and rstd. Call it after all elements have been reported.
  void finish() const;

 private:
  const KernelContext& context_;
  BatchNormStatisticsArgsOf<Stored> args_;
  uint32_t* missing_;  // [chunks]: elements of each chunk that are not written yet
};

}  // namespace reprise
