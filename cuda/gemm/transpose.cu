// Swaps two dimensions of a tensor. The counterpart of lib/cpu/gemm/transpose.cpp. Matrices are
// copied in squares that pass through shared memory, so that neighbouring threads read and write
// neighbouring elements. If the last dimension is not swapped, its runs are copied by packs.
// Matrices that are too narrow for squares are copied by elements.
#include "cuda/cuda_kernels.h"
#include "cuda/gemm/pack.h"
#include "cuda/grid.h"
#include "cuda/warp.h"

namespace reprise {
namespace {

constexpr uint32_t kSide = kWarpLanes, kWarps = kBlockThreads / kWarpLanes;
constexpr uint64_t kMinSide = 8;  // minimum side of a matrix that is copied by squares

template <typename Stored>
__global__ void __launch_bounds__(kBlockThreads)
    transpose_squares(const TransposeArgsOf<Stored> a, uint64_t across, uint64_t squares) {
  REPRISE_SHARED(float, shared, kSide * (kSide + 1));  // one column of padding, so that a column uses all banks
  const uint64_t down = parts(a.R, kSide);
  for (uint64_t i = blockIdx.x; i < squares; i += gridDim.x) {
    const uint64_t c = i % across * kSide, r = i / across % down * kSide, b = i / across / down % a.B,
                   m = i / across / down / a.B;
    for (uint32_t line = warp_index(); line < kSide; line += kWarps) {
      const uint64_t row = r + line, column = c + lane_index();
      if (row < a.R && column < a.C)
        shared[line * (kSide + 1) + lane_index()] = a.x[((m * a.R + row) * a.B + b) * a.C + column];
    }
    __syncthreads();
    for (uint32_t line = warp_index(); line < kSide; line += kWarps) {
      const uint64_t column = c + line, row = r + lane_index();
      if (row >= a.R || column >= a.C) continue;
      Stored* y = a.y + ((m * a.C + column) * a.B + b) * a.R + row;
      const float x = shared[lane_index() * (kSide + 1) + line];
      *y = a.accumulate_y ? float{*y} + x : x;
    }
    __syncthreads();
  }
}

template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads) transpose_runs(const TransposeArgsOf<Stored> a, uint64_t packs) {
  const uint64_t of_run = a.E / kWidth;
  for (uint64_t i = grid_thread(); i < packs; i += grid_threads()) {
    const uint64_t run = i / of_run, r = run % a.R, b = run / a.R % a.B, c = run / a.R / a.B % a.C,
                   m = run / a.R / a.B / a.C;
    Pack<kWidth> x = load_pack<kWidth>(a.x + (((m * a.R + r) * a.B + b) * a.C + c) * a.E + i % of_run * kWidth);
    if (a.accumulate_y) {
      const Pack<kWidth> y = load_pack<kWidth>(a.y + i * kWidth);
      REPRISE_UNROLL
      for (uint32_t k = 0; k < kWidth; ++k) x.at[k] += y.at[k];
    }
    store_pack(a.y + i * kWidth, x);
  }
}

}  // namespace

template <typename Stored>
Status cuda_transpose(const KernelContext& context, const TransposeArgsOf<Stored>& args) {
  constexpr uint32_t kWide = kPackWidth<Stored>;
  if (args.E == 1 && minimum(args.R, args.C) >= kMinSide) {
    const uint64_t across = parts(args.C, kSide), squares = args.M * args.B * parts(args.R, kSide) * across;
    const auto blocks = static_cast<uint32_t>(minimum(squares, kMaxBlocks));
    REPRISE_LAUNCH(transpose_squares<Stored>, blocks, kBlockThreads, context.queue, args, across, squares);
    return launch_status();
  }
  const uint32_t width = args.E % kWide == 0 ? kWide : 1;
  const uint64_t packs = args.M * args.C * args.B * args.R * args.E / width;
  const auto kernel = width > 1 ? transpose_runs<kWide, Stored> : transpose_runs<1, Stored>;
  REPRISE_LAUNCH(kernel, blocks_for(packs), kBlockThreads, context.queue, args, packs);
  return launch_status();
}

REPRISE_CUDA_INSTANTIATE(cuda_transpose, TransposeArgs)

}  // namespace reprise
