// Resizing of images, channels last. The counterpart of lib/cpu/conv/resize.cpp. A thread computes
// a pack of channels of one pixel of y or dx. For dx it sums over the outputs that read the pixel.
#include "cuda/cuda_kernels.h"
#include "cuda/gemm/pack.h"
#include "cuda/grid.h"

namespace reprise {
namespace {

// A pixel of image n, and the first channel of a pack of its channels.
struct Place {
  uint64_t n;
  int64_t row, column;
  uint64_t c;
};
template <uint32_t kWidth>
__device__ Place place_of(uint64_t i, int64_t height, int64_t width, uint64_t C) {
  const uint64_t packs = C / kWidth, pixel = i / packs, row = pixel / static_cast<uint64_t>(width);
  return {row / static_cast<uint64_t>(height), static_cast<int64_t>(row % static_cast<uint64_t>(height)),
          static_cast<int64_t>(pixel % static_cast<uint64_t>(width)), i % packs * kWidth};
}

template <uint32_t kWidth>
__device__ Pack<kWidth> blend(const Pack<kWidth>& near, const Pack<kWidth>& far, float share) {
  Pack<kWidth> y;
  REPRISE_UNROLL
  for (uint32_t k = 0; k < kWidth; ++k) y.at[k] = fmaf(share, far.at[k] - near.at[k], near.at[k]);
  return y;
}

template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads) resize_pixels(const ResizeForwardArgsOf<Stored> args, uint64_t packs) {
  const ResizeShape s = args.shape;
  for (uint64_t i = grid_thread(); i < packs; i += grid_threads()) {
    const Place at = place_of<kWidth>(i, s.height.out, s.width.out, s.C);
    const ResizeSide::Sources rows = s.height.sources(at.row), columns = s.width.sources(at.column);
    const Stored* image = args.x + at.n * static_cast<uint64_t>(s.height.in * s.width.in) * s.C + at.c;
    const auto pixel = [&](int64_t row, int64_t column) {
      return load_pack<kWidth>(image + static_cast<uint64_t>(row * s.width.in + column) * s.C);
    };
    Pack<kWidth> y = pixel(rows.near, columns.near);
    if (s.height.interpolates) {
      y = blend(y, pixel(rows.near, columns.far), columns.share);
      y = blend(y, blend(pixel(rows.far, columns.near), pixel(rows.far, columns.far), columns.share), rows.share);
    }
    store_pack(args.y + i * kWidth, y);
  }
}

template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads)
    gather_pixels(const ResizeBackwardArgsOf<Stored> args, uint64_t packs) {
  const ResizeShape s = args.shape;
  for (uint64_t i = grid_thread(); i < packs; i += grid_threads()) {
    const Place at = place_of<kWidth>(i, s.height.in, s.width.in, s.C);
    const Stored* image = args.dy + at.n * static_cast<uint64_t>(s.height.out * s.width.out) * s.C + at.c;
    const int64_t p_end = s.height.end_reader(at.row), q_end = s.width.end_reader(at.column);
    Pack<kWidth> sum = {};
    for (int64_t p = s.height.first_reader(at.row); p < p_end; ++p) {
      const float down = ResizeSide::share_of(at.row, s.height.sources(p));
      for (int64_t q = s.width.first_reader(at.column); q < q_end; ++q) {
        const float share = down * ResizeSide::share_of(at.column, s.width.sources(q));
        if (share == 0.0f) continue;  // output (p, q) does not read this pixel
        const Pack<kWidth> dy = load_pack<kWidth>(image + static_cast<uint64_t>(p * s.width.out + q) * s.C);
        REPRISE_UNROLL
        for (uint32_t k = 0; k < kWidth; ++k) sum.at[k] = fmaf(share, dy.at[k], sum.at[k]);
      }
    }
    if (args.accumulate_dx) {
      const Pack<kWidth> before = load_pack<kWidth>(args.dx + i * kWidth);
      REPRISE_UNROLL
      for (uint32_t k = 0; k < kWidth; ++k) sum.at[k] += before.at[k];
    }
    store_pack(args.dx + i * kWidth, sum);
  }
}

template <typename Stored>
constexpr uint32_t width_for(uint64_t C) {
  return C % kPackWidth<Stored> == 0 ? kPackWidth<Stored> : 1;
}

}  // namespace

template <typename Stored>
Status cuda_resize_forward(const KernelContext& context, const ResizeForwardArgsOf<Stored>& args) {
  const ResizeShape& s = args.shape;
  const uint32_t width = width_for<Stored>(s.C);
  const auto kernel = width > 1 ? resize_pixels<kPackWidth<Stored>, Stored> : resize_pixels<1, Stored>;
  const uint64_t packs = s.N * static_cast<uint64_t>(s.height.out * s.width.out) * s.C / width;
  REPRISE_LAUNCH(kernel, blocks_for(packs), kBlockThreads, context.queue, args, packs);
  return launch_status();
}

template <typename Stored>
Status cuda_resize_backward(const KernelContext& context, const ResizeBackwardArgsOf<Stored>& args) {
  const ResizeShape& s = args.shape;
  const uint32_t width = width_for<Stored>(s.C);
  const auto kernel = width > 1 ? gather_pixels<kPackWidth<Stored>, Stored> : gather_pixels<1, Stored>;
  const uint64_t packs = s.N * static_cast<uint64_t>(s.height.in * s.width.in) * s.C / width;
  REPRISE_LAUNCH(kernel, blocks_for(packs), kBlockThreads, context.queue, args, packs);
  return launch_status();
}

REPRISE_CUDA_INSTANTIATE(cuda_resize_forward, ResizeForwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_resize_backward, ResizeBackwardArgs)

}  // namespace reprise
