// Reports of CUDA kernels on wrong data. Embedding and loss head read indices that the host wrote.
// Before the launch that uses the indices, a launch of one block checks all indices. One block can
// find the first wrong position without atomics. A kernel that uses an index still checks that the
// index is in range.
#pragma once

#include "cuda/reduce.h"
#include "lib/plan.h"

namespace reprise {

constexpr uint64_t kNoFault = ~uint64_t{0};

// Records a fault in `scalars`, and sets `skip` so that no update follows. Does nothing if
// `scalars` is null, if `position` is kNoFault, or if the step already has a fault. Call the
// function from only one thread of a launch.
__device__ inline void note_fault(StepScalars* scalars, DataFault code, uint32_t row, uint64_t position) {
  if (scalars == nullptr || position == kNoFault || scalars->fault.code != DataFault::kNone) return;
  scalars->fault = {code, row, position};
  scalars->skip = 1;
}

// Returns the minimum of `value` over the block, to every thread. `shared` has kWarps values.
template <uint32_t kWarps, typename Shared>
__device__ uint64_t block_min(Shared& shared, uint64_t value) {
  value = warp_min(value);
  if (lane_index() == 0) shared[warp_index()] = value;
  __syncthreads();
  uint64_t smallest = kNoFault;
  for (uint32_t w = 0; w < kWarps; ++w) {
    const uint64_t other = shared[w];
    smallest = other < smallest ? other : smallest;
  }
  __syncthreads();
  return smallest;
}

}  // namespace reprise
