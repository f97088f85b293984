// Concatenation of the rows of tensors. The counterpart of lib/cpu/pointwise/concat.cpp. A thread
// copies 16 bytes of y if all rows are whole packs.
#include "cuda/cuda_kernels.h"
#include "cuda/gemm/pack.h"
#include "cuda/grid.h"

namespace reprise {
namespace {

template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads) join_rows(const ConcatArgsOf<Stored> args) {
  const uint64_t packs = args.K / kWidth, all = args.M * packs;
  for (uint64_t i = grid_thread(); i < all; i += grid_threads()) {
    const uint64_t m = i / packs, place = i % packs * kWidth;
    const Stored* from = nullptr;
    REPRISE_UNROLL
    for (uint32_t part = 0; part < kMaxConcatParts; ++part) {
      const uint64_t begin = part == 0 ? 0 : args.ends[part - 1], end = args.ends[part];
      if (place >= begin && place < end) from = args.parts[part] + m * (end - begin) + (place - begin);
    }
    store_pack(args.y + i * kWidth, load_pack<kWidth>(from));
  }
}

}  // namespace

template <typename Stored>
Status cuda_concat_forward(const KernelContext& context, const ConcatArgsOf<Stored>& args) {
  constexpr uint32_t kWide = kPackWidth<Stored>;
  bool wide = true;
  for (const uint64_t end : args.ends) wide = wide && end % kWide == 0;
  const auto kernel = wide ? join_rows<kWide, Stored> : join_rows<1, Stored>;
  REPRISE_LAUNCH(kernel, blocks_for(args.M * args.K / (wide ? kWide : 1)), kBlockThreads, context.queue, args);
  return launch_status();
}

REPRISE_CUDA_INSTANTIATE(cuda_concat_forward, ConcatArgs)

}  // namespace reprise
