// Copies a box out of a tensor, or into a tensor. The counterpart of lib/cpu/conv/columns.cpp.
// Memory bounds the time. A thread copies 16 bytes at a time if runs begin and end at whole packs.
#include "cuda/cuda_kernels.h"
#include "cuda/gemm/pack.h"
#include "cuda/grid.h"

namespace reprise {
namespace {

template <uint32_t kWidth, typename Stored>
__device__ void add_pack(Stored* to, const Stored* from) {
  Pack<kWidth> sum = load_pack<kWidth>(to);
  const Pack<kWidth> x = load_pack<kWidth>(from);
  REPRISE_UNROLL
  for (uint32_t k = 0; k < kWidth; ++k) sum.at[k] += x.at[k];
  store_pack(to, sum);
}

template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads) take_box(const TakeBoxArgsOf<Stored> args) {
  const uint64_t packs = args.box.part[3] / kWidth, all = args.box.part_elements() / kWidth;
  for (uint64_t i = grid_thread(); i < all; i += grid_threads()) {
    const Stored* from = args.whole + args.box.place_of_run(i / packs) + i % packs * kWidth;
    if (args.accumulate_part) {
      add_pack<kWidth>(args.part + i * kWidth, from);
    } else {
      store_pack(args.part + i * kWidth, load_pack<kWidth>(from));
    }
  }
}

template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads) add_box(const PutBoxArgsOf<Stored> args) {
  const uint64_t packs = args.box.part[3] / kWidth, all = args.box.part_elements() / kWidth;
  for (uint64_t i = grid_thread(); i < all; i += grid_threads()) {
    add_pack<kWidth>(args.whole + args.box.place_of_run(i / packs) + i % packs * kWidth, args.part + i * kWidth);
  }
}

// Writes every pack of the tensor: the box's elements inside the box, zeros outside.
template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads) overwrite_box(const PutBoxArgsOf<Stored> args) {
  const Box& box = args.box;
  const uint64_t packs = box.whole[3] / kWidth, all = box.whole_elements() / kWidth;
  for (uint64_t i = grid_thread(); i < all; i += grid_threads()) {
    const uint64_t run = box.run_in(box.row_in(i / packs / box.whole[2]), i / packs % box.whole[2]);
    const uint64_t place = i % packs * kWidth - box.first[3];  // wraps to a huge number before the box's first column
    const bool inside = run != Box::kNoRun && place < box.part[3];
    Pack<kWidth> pack = {};
    if (inside) pack = load_pack<kWidth>(args.part + run * box.part[3] + place);
    store_pack(args.whole + i * kWidth, pack);
  }
}

// Launches a thread for each pack of the `elements` if all runs consist of whole packs. Otherwise
// launches a thread for each element.
template <typename Stored, typename Args>
Status launch_packs(const KernelContext& context, void (*of_packs)(Args), void (*of_elements)(Args), uint64_t elements,
                    const Args& args) {
  constexpr uint32_t kWide = kPackWidth<Stored>;
  const bool wide = args.box.part[3] % kWide == 0 && args.box.whole[3] % kWide == 0 && args.box.first[3] % kWide == 0;
  const auto kernel = wide ? of_packs : of_elements;
  REPRISE_LAUNCH(kernel, blocks_for(elements / (wide ? kWide : 1)), kBlockThreads, context.queue, args);
  return launch_status();
}

}  // namespace

template <typename Stored>
Status cuda_take_box(const KernelContext& context, const TakeBoxArgsOf<Stored>& args) {
  return launch_packs<Stored>(context, take_box<kPackWidth<Stored>, Stored>, take_box<1, Stored>,
                              args.box.part_elements(), args);
}

template <typename Stored>
Status cuda_put_box(const KernelContext& context, const PutBoxArgsOf<Stored>& args) {
  constexpr uint32_t kWide = kPackWidth<Stored>;
  if (args.accumulate_whole)
    return launch_packs<Stored>(context, add_box<kWide, Stored>, add_box<1, Stored>, args.box.part_elements(), args);
  return launch_packs<Stored>(context, overwrite_box<kWide, Stored>, overwrite_box<1, Stored>,
                              args.box.whole_elements(), args);
}

REPRISE_CUDA_INSTANTIATE(cuda_take_box, TakeBoxArgs)
REPRISE_CUDA_INSTANTIATE(cuda_put_box, PutBoxArgs)

}  // namespace reprise
