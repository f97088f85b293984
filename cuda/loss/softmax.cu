// The softmax of rows and its gradient. The counterpart of lib/cpu/loss/softmax.cpp. A warp
// processes a row in several passes; all but the first read the row from a cache.
#include "cuda/cuda_kernels.h"
#include "cuda/device_math.h"
#include "cuda/grid.h"
#include "cuda/reduce.h"

namespace reprise {
namespace {

constexpr uint32_t kWarps = kBlockThreads / kWarpLanes;

uint32_t blocks_of_rows(uint64_t M) { return static_cast<uint32_t>(minimum(parts(M, kWarps), kMaxBlocks)); }

template <typename Stored>
__global__ void __launch_bounds__(kBlockThreads) softmax_warp_row(const SoftmaxForwardArgsOf<Stored> a) {
  for (uint64_t r = uint64_t{blockIdx.x} * kWarps + warp_index(); r < a.M; r += uint64_t{gridDim.x} * kWarps) {
    const Stored* x = a.x + r * a.C;
    float largest = -__builtin_inff(), sum = 0;
    for (uint32_t c = lane_index(); c < a.C; c += kWarpLanes) {
      const float z = x[c];
      largest = z > largest ? z : largest;
    }
    largest = warp_max(largest);
    for (uint32_t c = lane_index(); c < a.C; c += kWarpLanes) sum += device_exp(float{x[c]} - largest);
    const float scale = 1.0f / warp_sum(sum);
    for (uint32_t c = lane_index(); c < a.C; c += kWarpLanes)
      a.y[r * a.C + c] = scale * device_exp(float{x[c]} - largest);
  }
}

template <typename Stored>
__global__ void __launch_bounds__(kBlockThreads) softmax_slope_warp_row(const SoftmaxBackwardArgsOf<Stored> a) {
  for (uint64_t r = uint64_t{blockIdx.x} * kWarps + warp_index(); r < a.M; r += uint64_t{gridDim.x} * kWarps) {
    const Stored *y = a.y + r * a.C, *dy = a.dy + r * a.C;
    float sum = 0;
    for (uint32_t c = lane_index(); c < a.C; c += kWarpLanes) sum = fmaf(float{y[c]}, float{dy[c]}, sum);
    sum = warp_sum(sum);
    for (uint32_t c = lane_index(); c < a.C; c += kWarpLanes) a.dx[r * a.C + c] = float{y[c]} * (float{dy[c]} - sum);
  }
}

}  // namespace

template <typename Stored>
Status cuda_softmax_forward(const KernelContext& context, const SoftmaxForwardArgsOf<Stored>& args) {
  REPRISE_LAUNCH(softmax_warp_row<Stored>, blocks_of_rows(args.M), kBlockThreads, context.queue, args);
  return launch_status();
}

template <typename Stored>
Status cuda_softmax_backward(const KernelContext& context, const SoftmaxBackwardArgsOf<Stored>& args) {
  REPRISE_LAUNCH(softmax_slope_warp_row<Stored>, blocks_of_rows(args.M), kBlockThreads, context.queue, args);
  return launch_status();
}

REPRISE_CUDA_INSTANTIATE(cuda_softmax_forward, SoftmaxForwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_softmax_backward, SoftmaxBackwardArgs)

}  // namespace reprise
