// Writes multiples of three by a kernel that has the same names as cuda_same_names_fives.cu
// (cuda_same_names.h).
#include "tests/ports/cards/cuda_same_names.h"

#include "cuda/launch.h"

namespace reprise::test {

constexpr uint32_t kFactor = 3;

namespace {

constexpr uint32_t kThreads = 64;

__global__ void write_multiples(uint32_t* out) {
  REPRISE_SHARED(uint32_t, multiples, kThreads);
  multiples[threadIdx.x] = kFactor * threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = multiples[kThreads - 1 - threadIdx.x];
}

}  // namespace

Status launch_threes(uint32_t* out, void* queue) {
  REPRISE_LAUNCH(write_multiples, 1, kThreads, queue, out);
  return launch_status();
}

}  // namespace reprise::test
