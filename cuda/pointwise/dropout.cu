// Dropout. y is x / (1 - p) if the element's random number is at least the threshold, else 0. The
// backward is the same function of dy. The counterpart of lib/cpu/pointwise/dropout.cpp. The mask
// is drawn by rng.h, so it has the same bits as on the CPU. The backward draws the mask again, so
// it is not stored.
#include "cuda/cuda_kernels.h"
#include "cuda/gemm/pack.h"
#include "cuda/grid.h"
#include "lib/rng.h"

namespace reprise {
namespace {

struct Draws {
  uint32_t threshold, stream;
  float scale;
};

__device__ inline PhiloxBlock draw(const StepScalars& s, const Draws& draws, uint64_t element) {
  return philox_mask(s.seed, s.step, s.micro_batch, draws.stream, element / 4);
}

template <typename Stored>
__global__ void __launch_bounds__(kBlockThreads)
    drop_elements(Stored* y, const Stored* x, uint64_t n, const StepScalars* scalars, const Draws draws) {
  constexpr uint32_t kWidth = kPackWidth<Stored>;
  const StepScalars s = *scalars;
  for (uint64_t i = grid_thread() * kWidth; i < n; i += grid_threads() * kWidth) {
    if (i + kWidth > n) {
      for (uint64_t last = i; last < n; ++last) {
        y[last] = draw(s, draws, last).word[last % 4] >= draws.threshold ? float{x[last]} * draws.scale : 0.0f;
      }
      break;
    }
    Pack<kWidth> pack = load_pack<kWidth>(x + i);
    REPRISE_UNROLL
    for (uint32_t block = 0; block < kWidth / 4; ++block) {
      const PhiloxBlock words = draw(s, draws, i + 4 * block);
      REPRISE_UNROLL
      for (uint32_t k = 0; k < 4; ++k) {
        float& element = pack.at[4 * block + k];
        element = words.word[k] >= draws.threshold ? element * draws.scale : 0.0f;
      }
    }
    store_pack(y + i, pack);
  }
}

// Computes dropout if `shared` neighbouring elements share a draw. A pack must be inside one group
// of such elements.
template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads)
    drop_neighbours(Stored* y, const Stored* x, uint64_t n, uint64_t shared, const StepScalars* scalars,
                    const Draws draws) {
  const StepScalars s = *scalars;
  for (uint64_t i = grid_thread() * kWidth; i < n; i += grid_threads() * kWidth) {
    const uint64_t own = i / shared;
    const PhiloxBlock words = draw(s, draws, own);
    const uint32_t lane = own % 4;  // comparisons select the word, because an index would put words into local memory
    const uint32_t low = lane == 0 ? words.word[0] : words.word[1], high = lane == 2 ? words.word[2] : words.word[3];
    const bool kept = (lane < 2 ? low : high) >= draws.threshold;
    Pack<kWidth> pack = load_pack<kWidth>(x + i);
    REPRISE_UNROLL
    for (uint32_t k = 0; k < kWidth; ++k) pack.at[k] = kept ? pack.at[k] * draws.scale : 0.0f;
    store_pack(y + i, pack);
  }
}

}  // namespace

template <typename Stored>
Status cuda_dropout(const KernelContext& context, const DropoutArgsOf<Stored>& args) {
  const float p = args.dropout.probability;
  const Draws draws{dropout_threshold(p), args.dropout.stream, 1.0f / (1.0f - p)};
  const uint64_t shared = args.dropout.shared;
  if (shared != 1) {
    constexpr uint32_t kWide = kPackWidth<Stored>;
    const bool wide = shared % kWide == 0;
    REPRISE_LAUNCH((wide ? drop_neighbours<kWide, Stored> : drop_neighbours<1, Stored>),
                   blocks_for(args.n / (wide ? kWide : 1)), kBlockThreads, context.queue, args.y, args.x, args.n,
                   shared, args.scalars, draws);
    return launch_status();
  }
  REPRISE_LAUNCH(drop_elements<Stored>, blocks_for(parts(args.n, kPackWidth<Stored>)), kBlockThreads, context.queue,
                 args.y, args.x, args.n, args.scalars, draws);
  return launch_status();
}

REPRISE_CUDA_INSTANTIATE(cuda_dropout, DropoutArgs)

}  // namespace reprise
