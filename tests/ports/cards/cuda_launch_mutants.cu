// Implements cuda_launch_mutants.h. The kernels do nothing, because only their launches are judged.
#include "tests/ports/cards/cuda_launch_mutants.h"

#include "cuda/launch.h"
#include "cuda/warp.h"

namespace reprise::test {
namespace {

constexpr uint32_t kThreads = 256, kKiB = 1024;

__global__ void __launch_bounds__(kThreads) count_up(uint32_t* to) { to[blockIdx.x] += 1; }

template <uint32_t kBytes>
__global__ void __launch_bounds__(kThreads) take_dynamic(uint32_t* to) {
  REPRISE_DYNAMIC_SHARED(shared, kBytes);
  shared.store(threadIdx.x * 4, threadIdx.x);
  __syncthreads();
  to[threadIdx.x] = shared.load<uint32_t>(threadIdx.x * 4);
}

template <uint32_t kBytes>
__global__ void __launch_bounds__(kThreads) take_static_too(uint32_t* to) {
  REPRISE_SHARED(uint32_t, words, kThreads);
  REPRISE_DYNAMIC_SHARED(shared, kBytes);
  words[threadIdx.x] = to[threadIdx.x];
  shared.store(threadIdx.x * 4, threadIdx.x);
  __syncthreads();
  to[threadIdx.x] = shared.load<uint32_t>(threadIdx.x * 4) + words[kThreads - 1 - threadIdx.x];
}

struct ManyParameters {
  uint32_t words[1024];
};
__global__ void __launch_bounds__(kThreads) take_parameters(uint32_t* to, const ManyParameters parameters) {
  to[0] = parameters.words[threadIdx.x];
}

void launch_of_grid(dim3 grid, dim3 block, void* queue) { REPRISE_LAUNCH(count_up, grid, block, queue, nullptr); }

template <uint32_t kBytes>
void launch_dynamic(void* queue) {
  REPRISE_LAUNCH_DYNAMIC(take_dynamic<kBytes>, 1, kThreads, kBytes, queue, nullptr);
}

void copy_on(void* stream) {
  (void)cudaMemcpyAsync(nullptr, nullptr, 0, cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(stream));
}

// Launches with CUDA's own syntax instead of cuda/launch.h. Returns false if this file is not
// compiled by nvcc.
bool launch_by_hand(LaunchMutant mutant, void* queue) {
#ifdef __CUDACC__
  const auto stream = static_cast<cudaStream_t>(queue);
  if (mutant == LaunchMutant::kOptedInForLess) allow_dynamic_shared(take_dynamic<64 * kKiB>, 60 * kKiB);
  take_dynamic<64 * kKiB><<<1, kThreads, 64 * kKiB, stream>>>(nullptr);
  return true;
#else
  return static_cast<void>(mutant), static_cast<void>(queue), false;
#endif
}

}  // namespace

bool launch_mutant(LaunchMutant mutant, void* queue, void* other) {
  switch (mutant) {
    case LaunchMutant::kRight: launch_of_grid({65535, 65535, 1}, kThreads, queue); break;
    case LaunchMutant::kRightShared: launch_dynamic<64 * kKiB>(queue); break;
    case LaunchMutant::kRightMostShared: launch_dynamic<99 * kKiB>(queue); break;
    case LaunchMutant::kStreamIgnored: launch_of_grid(1, kThreads, nullptr); break;
    case LaunchMutant::kStreamOfAnother: launch_of_grid(1, kThreads, other); break;
    case LaunchMutant::kSharedOnDefault: launch_dynamic<64 * kKiB>(nullptr); break;
    case LaunchMutant::kCopyOnDefault: copy_on(nullptr); break;
    case LaunchMutant::kCopyWithout: (void)cudaMemcpyAsync(nullptr, nullptr, 0, cudaMemcpyDeviceToDevice); break;
    case LaunchMutant::kFillOnDefault: (void)cudaMemsetAsync(nullptr, 0, 0, nullptr); break;
    case LaunchMutant::kTooMuchShared: launch_dynamic<128 * kKiB>(queue); break;
    case LaunchMutant::kSharedBesideStatic:
      REPRISE_LAUNCH_DYNAMIC(take_static_too<48 * kKiB>, 1, kThreads, 48 * kKiB, queue, nullptr);
      break;
    case LaunchMutant::kGridTooHigh: launch_of_grid({1, 65536, 1}, kThreads, queue); break;
    case LaunchMutant::kGridTooDeep: launch_of_grid({1, 1, 65536}, kThreads, queue); break;
    case LaunchMutant::kGridOfNone: launch_of_grid({1, 0, 1}, kThreads, queue); break;
    case LaunchMutant::kBlockTooLarge: launch_of_grid(1, 1025, queue); break;
    case LaunchMutant::kMoreThreadsThanBounds: launch_of_grid(1, 2 * kThreads, queue); break;
    case LaunchMutant::kParametersTooLarge:
      REPRISE_LAUNCH(take_parameters, 1, kThreads, queue, nullptr, ManyParameters{});
      break;
    default: return launch_by_hand(mutant, queue);
  }
  return true;
}

}  // namespace reprise::test
