// Max pooling and global average pooling, channels last.
// Here as the twin of lib/cpu/pool.cpp: neighbouring threads take neighbouring channels of a pixel.
#include "cuda/cuda_kernels.h"
#include "cuda/grid.h"
#include "cuda/pack.h"
#include "cuda/reduce.h"

namespace reprise {
namespace {

// ---- max pooling ----

// A pixel of an image [N, height, width, C], and the first of a pack of its channels.
struct Place {
  uint32_t n, h, w, c;
};
// The i-th pack of an image.
template <uint32_t kWidth>
__device__ Place place_of(uint64_t i, uint32_t height, uint32_t width, uint32_t C) {
  const uint32_t packs = C / kWidth;
  const uint64_t pixel = i / packs, row = pixel / width;
  return {static_cast<uint32_t>(row / height), static_cast<uint32_t>(row % height), static_cast<uint32_t>(pixel % width),
          static_cast<uint32_t>(i % packs) * kWidth};
}

// The window's elements [first, end) along one axis that lie inside the image.
struct Taps {
  uint32_t first, end;
};
__device__ inline Taps taps_inside(uint32_t output, uint32_t size, uint32_t kernel, uint32_t stride, uint32_t pad) {
  const uint32_t start = output * stride;  // counted from the padded image's edge
  const uint32_t room = size + pad - start;
  return {start < pad ? pad - start : 0, kernel < room ? kernel : room};
}
// The outputs [first, end) along one axis whose window covers `position` of the padded image.
__device__ inline Taps outputs_covering(uint32_t position, uint32_t outputs, uint32_t kernel, uint32_t stride) {
  const uint32_t end = position / stride + 1;
  return {position < kernel ? 0 : (position - kernel) / stride + 1, end < outputs ? end : outputs};
}

// The maximum so far and where it was found. A NaN wins and stays, as torch has it, so that a broken step is noticed.
template <uint32_t kWidth>
struct Maximum {
  Pack<kWidth> value;
  uint32_t tap[kWidth];

  __device__ explicit Maximum(uint32_t first) {
    REPRISE_UNROLL
    for (uint32_t k = 0; k < kWidth; ++k) value.at[k] = -__builtin_inff(), tap[k] = first;
  }
  __device__ void meet(const Pack<kWidth>& x, uint32_t at) {
    REPRISE_UNROLL
    for (uint32_t k = 0; k < kWidth; ++k) {
      const bool wins = x.at[k] > value.at[k] || x.at[k] != x.at[k];
      value.at[k] = wins ? x.at[k] : value.at[k];
      tap[k] = wins ? at : tap[k];
    }
  }
};

template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads) max_pool_windows(const MaxPoolForwardArgsOf<Stored> args, uint64_t packs) {
  const PoolShape s = args.shape;
  const WindowAttribute a = s.window;
  for (uint64_t i = grid_thread(); i < packs; i += grid_threads()) {
    const Place at = place_of<kWidth>(i, s.P, s.Q, s.C);
    const Taps rows = taps_inside(at.h, s.H, a.kernel_h, a.stride, a.pad), columns = taps_inside(at.w, s.W, a.kernel_w, a.stride, a.pad);
    const Stored* image = args.x + uint64_t{at.n} * s.H * s.W * s.C + at.c;
    Maximum<kWidth> best(rows.first * a.kernel_w + columns.first);
    for (uint32_t r = rows.first; r < rows.end; ++r) {
      for (uint32_t t = columns.first; t < columns.end; ++t) {
        const uint64_t pixel = uint64_t{at.h * a.stride + r - a.pad} * s.W + (at.w * a.stride + t - a.pad);
        best.meet(load_pack<kWidth>(image + pixel * s.C), r * a.kernel_w + t);
      }
    }
    BytePack<kWidth> index;
    REPRISE_UNROLL
    for (uint32_t k = 0; k < kWidth; ++k) index.at[k] = static_cast<uint8_t>(best.tap[k]);
    store_pack(args.y + i * kWidth, best.value);
    store_bytes(args.index + i * kWidth, index);
  }
}

// Gathered: each dx is written once, by one thread, and sums over the windows in their order.
template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads) max_pool_gather(const MaxPoolBackwardArgsOf<Stored> args, uint64_t packs) {
  const PoolShape s = args.shape;
  const WindowAttribute a = s.window;
  for (uint64_t i = grid_thread(); i < packs; i += grid_threads()) {
    const Place at = place_of<kWidth>(i, s.H, s.W, s.C);
    const uint32_t h = at.h + a.pad, w = at.w + a.pad;
    const Taps rows = outputs_covering(h, s.P, a.kernel_h, a.stride), columns = outputs_covering(w, s.Q, a.kernel_w, a.stride);
    const uint64_t image = uint64_t{at.n} * s.P * s.Q * s.C + at.c;
    Pack<kWidth> sum = {};
    for (uint32_t p = rows.first; p < rows.end; ++p) {
      for (uint32_t q = columns.first; q < columns.end; ++q) {
        const uint32_t tap = (h - p * a.stride) * a.kernel_w + (w - q * a.stride);
        const uint64_t out = image + (uint64_t{p} * s.Q + q) * s.C;
        const Pack<kWidth> dy = load_pack<kWidth>(args.dy + out);
        const BytePack<kWidth> index = load_bytes<kWidth>(args.index + out);
        REPRISE_UNROLL
        for (uint32_t k = 0; k < kWidth; ++k) sum.at[k] += index.at[k] == tap ? dy.at[k] : 0.0f;
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

// ---- the mean over an image ----

constexpr uint32_t kWarps = kBlockThreads / kWarpLanes;

// A block takes a tile of an image's channels, a lane a pack of them, the warps the pixels in turns.
template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads) mean_pixels(const GlobalPoolArgsOf<Stored> args, uint32_t tiles) {
  REPRISE_SHARED(float, shared, kWidth * kBlockThreads);
  const uint64_t C = args.C;
  for (uint64_t b = blockIdx.x; b < uint64_t{args.N} * tiles; b += gridDim.x) {
    const uint64_t n = b / tiles, c = (b % tiles * kWarpLanes + lane_index()) * kWidth;
    float sums[kWidth] = {};
    for (uint64_t i = warp_index(); c < C && i < args.HW; i += kWarps) {
      const Pack<kWidth> x = load_pack<kWidth>(args.in + (n * args.HW + i) * C + c);
      REPRISE_UNROLL
      for (uint32_t k = 0; k < kWidth; ++k) sums[k] += x.at[k];
    }
    const float sum = sum_across_warps<kWarps>(shared, sums);
    if (warp_index() < kWidth && c < C) args.out[n * C + c + warp_index()] = sum / static_cast<float>(args.HW);
  }
}

template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads) spread_pixels(const GlobalPoolArgsOf<Stored> args, uint64_t packs) {
  const float scale = 1.0f / static_cast<float>(args.HW);
  const uint64_t of_pixel = args.C / kWidth, of_image = of_pixel * args.HW;
  for (uint64_t i = grid_thread(); i < packs; i += grid_threads()) {
    const Pack<kWidth> dy = load_pack<kWidth>(args.in + (i / of_image * of_pixel + i % of_pixel) * kWidth);
    Pack<kWidth> dx = {};
    if (args.accumulate_out) dx = load_pack<kWidth>(args.out + i * kWidth);
    REPRISE_UNROLL
    for (uint32_t k = 0; k < kWidth; ++k) dx.at[k] = fmaf(dy.at[k], scale, dx.at[k]);
    store_pack(args.out + i * kWidth, dx);
  }
}

template <typename Stored>
constexpr uint32_t width_for(uint32_t C) {
  return C % kPackWidth<Stored> == 0 ? kPackWidth<Stored> : 1;
}

}  // namespace

template <typename Stored>
Status cuda_max_pool_forward(const KernelContext& context, const MaxPoolForwardArgsOf<Stored>& args) {
  const PoolShape& s = args.shape;
  const uint32_t width = width_for<Stored>(s.C);
  const auto kernel = width > 1 ? max_pool_windows<kPackWidth<Stored>, Stored> : max_pool_windows<1, Stored>;
  const uint64_t packs = uint64_t{s.N} * s.P * s.Q * s.C / width;
  REPRISE_LAUNCH(kernel, blocks_for(packs), kBlockThreads, context.queue, args, packs);
  return launch_status();
}

template <typename Stored>
Status cuda_max_pool_backward(const KernelContext& context, const MaxPoolBackwardArgsOf<Stored>& args) {
  const PoolShape& s = args.shape;
  const uint32_t width = width_for<Stored>(s.C);
  const auto kernel = width > 1 ? max_pool_gather<kPackWidth<Stored>, Stored> : max_pool_gather<1, Stored>;
  const uint64_t packs = uint64_t{s.N} * s.H * s.W * s.C / width;
  REPRISE_LAUNCH(kernel, blocks_for(packs), kBlockThreads, context.queue, args, packs);
  return launch_status();
}

template <typename Stored>
Status cuda_global_pool_forward(const KernelContext& context, const GlobalPoolArgsOf<Stored>& args) {
  const uint32_t width = width_for<Stored>(args.C);
  const auto kernel = width > 1 ? mean_pixels<kPackWidth<Stored>, Stored> : mean_pixels<1, Stored>;
  const auto tiles = static_cast<uint32_t>(parts(args.C, width * kWarpLanes));
  const uint64_t blocks = most(1, least(uint64_t{args.N} * tiles, kMostBlocks));
  REPRISE_LAUNCH(kernel, static_cast<uint32_t>(blocks), kBlockThreads, context.queue, args, tiles);
  return launch_status();
}

template <typename Stored>
Status cuda_global_pool_backward(const KernelContext& context, const GlobalPoolArgsOf<Stored>& args) {
  const uint32_t width = width_for<Stored>(args.C);
  const auto kernel = width > 1 ? spread_pixels<kPackWidth<Stored>, Stored> : spread_pixels<1, Stored>;
  const uint64_t packs = uint64_t{args.N} * args.HW * args.C / width;
  REPRISE_LAUNCH(kernel, blocks_for(packs), kBlockThreads, context.queue, args, packs);
  return launch_status();
}

REPRISE_CUDA_INSTANTIATE(cuda_max_pool_forward, MaxPoolForwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_max_pool_backward, MaxPoolBackwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_global_pool_forward, GlobalPoolArgs)
REPRISE_CUDA_INSTANTIATE(cuda_global_pool_backward, GlobalPoolArgs)

}  // namespace reprise
