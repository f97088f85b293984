// Functions of one number, applied to every element, and their gradients (lib/unary_math.h). The
// counterpart of lib/cpu/pointwise/unary.cpp. Memory bounds the time, so a thread reads 16 bytes of
// each tensor at a time.
#include "cuda/cuda_kernels.h"
#include "cuda/device_math.h"
#include "cuda/gemm/pack.h"
#include "cuda/grid.h"
#include "lib/unary_math.h"

namespace reprise {
namespace {

// The functions that lib/unary_math.h needs.
struct DeviceMath {
  __device__ static float exp(float x) { return device_exp(x); }
  __device__ static float exp_at_most_88(float x) { return device_exp(x); }
  __device__ static float exp_minus_one(float x) { return device_exp_minus_one(x); }
  __device__ static float one_plus_exp(float x) { return 1.0f + device_exp(x); }
  __device__ static float log_one_plus(float x) { return device_log_one_plus(x); }
  __device__ static float tanh(float x) { return device_tanh(x); }
  __device__ static float sqrt(float x) { return sqrtf(x); }
  __device__ static float fused(float a, float b, float c) { return fmaf(a, b, c); }
};

template <typename Function, uint32_t kWidth, typename Stored>
__device__ void apply(const UnaryForwardArgsOf<Stored>& args, uint64_t i) {
  Pack<kWidth> x = load_pack<kWidth>(args.x + i);
  REPRISE_UNROLL
  for (uint32_t k = 0; k < kWidth; ++k) x.at[k] = Function::of(x.at[k], args.unary.parameter);
  store_pack(args.y + i, x);
}
template <typename Function, uint32_t kWidth, typename Stored>
__device__ void apply(const UnaryBackwardArgsOf<Stored>& args, uint64_t i) {
  const Pack<kWidth> x = load_pack<kWidth>(args.x + i);
  Pack<kWidth> dy = load_pack<kWidth>(args.dy + i);
  REPRISE_UNROLL
  for (uint32_t k = 0; k < kWidth; ++k) dy.at[k] *= Function::slope(x.at[k], args.unary.parameter);
  store_pack(args.dx + i, dy);
}

// Applies a function to every element. Serves the forward and the backward.
template <typename Function, uint32_t kWidth, typename Args>
__global__ void __launch_bounds__(kBlockThreads) unary_elements(const Args args) {
  for (uint64_t i = grid_thread() * kWidth; i < args.n; i += grid_threads() * kWidth) {
    if (i + kWidth <= args.n) {
      apply<Function, kWidth>(args, i);
    } else {
      for (uint64_t last = i; last < args.n; ++last) apply<Function, 1>(args, last);
    }
  }
}

template <typename Function, uint32_t kWidth, typename Args>
void launch(const KernelContext& context, const Args& args) {
  REPRISE_LAUNCH((unary_elements<Function, kWidth, Args>), blocks_for(parts(args.n, kWidth)), kBlockThreads,
                 context.queue, args);
}

template <uint32_t kWidth, typename Args>
Status launch_function(const KernelContext& context, const Args& args) {
  unary::with_function<DeviceMath>(args.unary.function, [&]<typename Function>(Function) {
    launch<Function, kWidth>(context, args);
  });
  return launch_status();
}

}  // namespace

template <typename Stored>
Status cuda_unary_forward(const KernelContext& context, const UnaryForwardArgsOf<Stored>& args) {
  return launch_function<kPackWidth<Stored>>(context, args);
}

template <typename Stored>
Status cuda_unary_backward(const KernelContext& context, const UnaryBackwardArgsOf<Stored>& args) {
  return launch_function<kPackWidth<Stored>>(context, args);
}

REPRISE_CUDA_INSTANTIATE(cuda_unary_forward, UnaryForwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_unary_backward, UnaryBackwardArgs)

}  // namespace reprise
