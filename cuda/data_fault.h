// How a CUDA kernel says that data are wrong.
// Here because embedding and loss head read indices that the host has filled. One block looks at all of them, before the blocks that use
// them: the smallest position is found without atomics, and whoever uses an index still asks whether it is in range.
#pragma once

#include "cuda/reduce.h"
#include "lib/plan.h"

namespace reprise {

constexpr uint64_t kNoFault = ~uint64_t{0};

// By one thread of a launch. The first fault of a step stays. No update follows.
__device__ inline void note_fault(StepScalars* scalars, DataFault code, uint32_t row, uint64_t position) {
  if (scalars == nullptr || position == kNoFault || scalars->fault.code != DataFault::kNone) return;
  scalars->fault = {code, row, position};
  scalars->skip = 1;
}

// The smallest over the block, in every thread. `shared` holds kWarps values.
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
