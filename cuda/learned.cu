// A parameter as an activation, and its gradient: the twin of lib/cpu/learned.cpp. These tensors are small: a thread takes one number at a time.
#include "cuda/cuda_kernels.h"
#include "cuda/grid.h"

namespace reprise {
namespace {

template <typename To, typename From>
__global__ void __launch_bounds__(kBlockThreads) write_elements(To* to, const From* from, bool accumulate, uint64_t n) {
  for (uint64_t i = grid_thread(); i < n; i += grid_threads()) to[i] = accumulate ? float{to[i]} + float{from[i]} : float{from[i]};
}

}  // namespace

template <typename Stored>
Status cuda_learned_forward(const KernelContext& context, const LearnedForwardArgsOf<Stored>& args) {
  REPRISE_LAUNCH((write_elements<Stored, float>), blocks_for(args.n), kBlockThreads, context.queue, args.y, args.w, false, args.n);
  return launch_status();
}

template <typename Stored>
Status cuda_learned_backward(const KernelContext& context, const LearnedBackwardArgsOf<Stored>& args) {
  REPRISE_LAUNCH((write_elements<float, Stored>), blocks_for(args.n), kBlockThreads, context.queue, args.dw, args.dy, args.accumulate_dw, args.n);
  return launch_status();
}

REPRISE_CUDA_INSTANTIATE(cuda_learned_forward, LearnedForwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_learned_backward, LearnedBackwardArgs)

}  // namespace reprise
