// A run of neighbouring columns of rows, and its gradient: the twin of lib/cpu/columns.cpp. Memory bounds both: a thread takes 16 bytes at a
// time where rows and the run are whole packs.
#include "cuda/cuda_kernels.h"
#include "cuda/grid.h"
#include "cuda/pack.h"

namespace reprise {
namespace {

template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads) take_columns(const ColumnsForwardArgsOf<Stored> args) {
  const uint32_t packs = args.C / kWidth;
  for (uint64_t i = grid_thread(); i < args.M * packs; i += grid_threads()) {
    const uint64_t row = i / packs, c = i % packs * kWidth;
    store_pack(args.y + row * args.C + c, load_pack<kWidth>(args.x + row * args.K + args.first + c));
  }
}

// dx's columns of the run, or all of them where they are not added to.
template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads) put_columns(const ColumnsBackwardArgsOf<Stored> args) {
  const uint32_t begin = args.accumulate_dx ? args.first : 0, packs = (args.accumulate_dx ? args.C : args.K) / kWidth;
  for (uint64_t i = grid_thread(); i < args.M * packs; i += grid_threads()) {
    const uint64_t row = i / packs;
    const uint32_t column = begin + static_cast<uint32_t>(i % packs) * kWidth;
    Stored* to = args.dx + row * args.K + column;
    Pack<kWidth> dx = {};
    if (args.accumulate_dx) dx = load_pack<kWidth>(to);
    if (column >= args.first && column < args.first + args.C) {
      const Pack<kWidth> dy = load_pack<kWidth>(args.dy + row * args.C + (column - args.first));
      REPRISE_UNROLL
      for (uint32_t k = 0; k < kWidth; ++k) dx.at[k] += dy.at[k];
    }
    store_pack(to, dx);
  }
}

// A thread for each pack of so many elements where rows and the run are whole packs, else one for each element.
template <typename Stored, typename Args>
Status launch_packs(const KernelContext& context, void (*of_packs)(Args), void (*of_elements)(Args), uint64_t elements, const Args& args) {
  constexpr uint32_t kWide = kPackWidth<Stored>;
  const bool wide = args.C % kWide == 0 && args.K % kWide == 0 && args.first % kWide == 0;
  const auto kernel = wide ? of_packs : of_elements;
  REPRISE_LAUNCH(kernel, blocks_for(elements / (wide ? kWide : 1)), kBlockThreads, context.queue, args);
  return launch_status();
}

}  // namespace

template <typename Stored>
Status cuda_columns_forward(const KernelContext& context, const ColumnsForwardArgsOf<Stored>& args) {
  return launch_packs<Stored>(context, take_columns<kPackWidth<Stored>, Stored>, take_columns<1, Stored>, args.M * args.C, args);
}

template <typename Stored>
Status cuda_columns_backward(const KernelContext& context, const ColumnsBackwardArgsOf<Stored>& args) {
  return launch_packs<Stored>(context, put_columns<kPackWidth<Stored>, Stored>, put_columns<1, Stored>, args.M * args.K, args);
}

REPRISE_CUDA_INSTANTIATE(cuda_columns_forward, ColumnsForwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_columns_backward, ColumnsBackwardArgs)

}  // namespace reprise
