// Max pooling, average pooling and global average pooling, channels last. The counterpart of
// lib/cpu/conv/pool.cpp. Neighbouring threads process neighbouring channels of a pixel.
#include "cuda/cuda_kernels.h"
#include "cuda/gemm/pack.h"
#include "cuda/grid.h"
#include "cuda/reduce.h"

namespace reprise {
namespace {

// ---- max pooling ----

// A pixel of an image [N, height, width, C], and the first channel of a pack of its channels.
struct Place {
  uint32_t n, h, w, c;
};
// Returns the pixel and the first channel of the i-th pack of the images.
template <uint32_t kWidth>
__device__ Place place_of(uint64_t i, uint32_t height, uint32_t width, uint32_t C) {
  const uint32_t packs = C / kWidth;
  const uint64_t pixel = i / packs, row = pixel / width;
  return {static_cast<uint32_t>(row / height), static_cast<uint32_t>(row % height),
          static_cast<uint32_t>(pixel % width), static_cast<uint32_t>(i % packs) * kWidth};
}

// A range [first, end) along one axis, either of the taps of a window that are inside the image, or
// of outputs.
struct Taps {
  uint32_t first, end;
  __device__ uint32_t count() const { return end - first; }
};
__device__ inline Taps taps_inside(uint32_t output, uint32_t size, const WindowSide& side) {
  const uint32_t start = output * side.stride;  // counted from the padded image's edge
  const uint32_t space = (size + side.pad - start + side.dilation - 1) / side.dilation;
  return {start < side.pad ? (side.pad - start + side.dilation - 1) / side.dilation : 0,
          side.kernel < space ? side.kernel : space};
}
// Returns the outputs [first, end) along one axis that may have a tap on `position` of the padded
// image.
__device__ inline Taps outputs_covering(uint32_t position, uint32_t outputs, const WindowSide& side) {
  const uint32_t end = position / side.stride + 1, extent = (side.kernel - 1) * side.dilation + 1;
  return {position < extent ? 0 : (position - extent) / side.stride + 1, end < outputs ? end : outputs};
}
// The tap of `output` that is on `position` of the padded image. `there` is false if the position
// is between two taps.
struct CoveringTap {
  uint32_t tap;
  bool there;
  __device__ CoveringTap(uint32_t position, uint32_t output, const WindowSide& side) {
    const uint32_t distance = position - output * side.stride;
    tap = distance / side.dilation;
    there = tap * side.dilation == distance;
  }
};

// Returns the index, within the image, of the pixel that tap (r, t) of the window of output `at`
// reads. The tap must be inside the image.
__device__ inline uint64_t pixel_under(const PoolShape& s, const Place& at, uint32_t r, uint32_t t) {
  const WindowAttribute& a = s.window;
  return uint64_t{at.h * a.stride_h + r * a.dilation_h - a.pad_top} * s.W +
         (at.w * a.stride_w + t * a.dilation_w - a.pad_left);
}

// The maximum of a window so far, and its tap. NaN counts as the maximum, as in torch, so that a
// faulty step is detected.
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
__global__ void __launch_bounds__(kBlockThreads)
    max_pool_windows(const MaxPoolForwardArgsOf<Stored> args, uint64_t packs) {
  const PoolShape s = args.shape;
  const WindowAttribute a = s.window;
  for (uint64_t i = grid_thread(); i < packs; i += grid_threads()) {
    const Place at = place_of<kWidth>(i, s.P, s.Q, s.C);
    const Taps rows = taps_inside(at.h, s.H, a.rows()), columns = taps_inside(at.w, s.W, a.columns());
    const Stored* image = args.x + uint64_t{at.n} * s.H * s.W * s.C + at.c;
    Maximum<kWidth> best(rows.first * a.kernel_w + columns.first);
    for (uint32_t r = rows.first; r < rows.end; ++r) {
      for (uint32_t t = columns.first; t < columns.end; ++t) {
        const uint64_t pixel = pixel_under(s, at, r, t);
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

// Computes dx. One thread writes an element of dx once, after it has summed the windows in order.
template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads)
    max_pool_gather(const MaxPoolBackwardArgsOf<Stored> args, uint64_t packs) {
  const PoolShape s = args.shape;
  const WindowSide down = s.window.rows(), across = s.window.columns();
  for (uint64_t i = grid_thread(); i < packs; i += grid_threads()) {
    const Place at = place_of<kWidth>(i, s.H, s.W, s.C);
    const uint32_t h = at.h + down.pad, w = at.w + across.pad;
    const Taps rows = outputs_covering(h, s.P, down), columns = outputs_covering(w, s.Q, across);
    const uint64_t image = uint64_t{at.n} * s.P * s.Q * s.C + at.c;
    Pack<kWidth> sum = {};
    for (uint32_t p = rows.first; p < rows.end; ++p) {
      const CoveringTap r(h, p, down);
      for (uint32_t q = columns.first; r.there && q < columns.end; ++q) {
        const CoveringTap t(w, q, across);
        const uint32_t tap = r.tap * across.kernel + t.tap;
        if (!t.there) continue;
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

// ---- the mean by window ----

// Returns the number of taps along one side that count in the mean's divisor.
__device__ inline uint32_t places_along(const WindowAttribute& window, const WindowSide& side, const Taps& inside) {
  return window.counts_padding != 0 ? side.kernel : inside.count();
}

template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads) avg_pool_windows(const AvgPoolArgsOf<Stored> args, uint64_t packs) {
  const PoolShape s = args.shape;
  for (uint64_t i = grid_thread(); i < packs; i += grid_threads()) {
    const Place at = place_of<kWidth>(i, s.P, s.Q, s.C);
    const Taps rows = taps_inside(at.h, s.H, s.window.rows()), columns = taps_inside(at.w, s.W, s.window.columns());
    const Stored* image = args.in + uint64_t{at.n} * s.H * s.W * s.C + at.c;
    Pack<kWidth> sum = {};
    for (uint32_t r = rows.first; r < rows.end; ++r) {
      for (uint32_t t = columns.first; t < columns.end; ++t) {
        const Pack<kWidth> x = load_pack<kWidth>(image + pixel_under(s, at, r, t) * s.C);
        REPRISE_UNROLL
        for (uint32_t k = 0; k < kWidth; ++k) sum.at[k] += x.at[k];
      }
    }
    const uint32_t places =
        places_along(s.window, s.window.rows(), rows) * places_along(s.window, s.window.columns(), columns);
    const float share = 1.0f / static_cast<float>(places);
    REPRISE_UNROLL
    for (uint32_t k = 0; k < kWidth; ++k) sum.at[k] *= share;
    store_pack(args.out + i * kWidth, sum);
  }
}

// Computes dx. One thread writes an element of dx once, as in max_pool_gather().
template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads) avg_pool_gather(const AvgPoolArgsOf<Stored> args, uint64_t packs) {
  const PoolShape s = args.shape;
  const WindowSide down = s.window.rows(), across = s.window.columns();
  for (uint64_t i = grid_thread(); i < packs; i += grid_threads()) {
    const Place at = place_of<kWidth>(i, s.H, s.W, s.C);
    const uint32_t h = at.h + down.pad, w = at.w + across.pad;
    const Taps rows = outputs_covering(h, s.P, down), columns = outputs_covering(w, s.Q, across);
    const uint64_t image = uint64_t{at.n} * s.P * s.Q * s.C + at.c;
    Pack<kWidth> sum = {};
    for (uint32_t p = rows.first; p < rows.end; ++p) {
      if (!CoveringTap(h, p, down).there) continue;
      const uint32_t places = places_along(s.window, down, taps_inside(p, s.H, down));
      const Stored* row = args.in + image + uint64_t{p} * s.Q * s.C;
      REPRISE_ROLLED  // if unrolled, the addresses of several outputs would spill
      for (uint32_t q = columns.first; q < columns.end; ++q) {
        if (!CoveringTap(w, q, across).there) continue;
        const float share =
            1.0f / static_cast<float>(places * places_along(s.window, across, taps_inside(q, s.W, across)));
        const Pack<kWidth> dy = load_pack<kWidth>(row + uint64_t{q} * s.C);
        REPRISE_UNROLL
        for (uint32_t k = 0; k < kWidth; ++k) sum.at[k] = fmaf(dy.at[k], share, sum.at[k]);
      }
    }
    if (args.accumulate_out) {
      const Pack<kWidth> before = load_pack<kWidth>(args.out + i * kWidth);
      REPRISE_UNROLL
      for (uint32_t k = 0; k < kWidth; ++k) sum.at[k] += before.at[k];
    }
    store_pack(args.out + i * kWidth, sum);
  }
}

// ---- the mean over an image ----

constexpr uint32_t kWarps = kBlockThreads / kWarpLanes;

// Computes the means. A block processes a tile of an image's channels. A lane has one pack of the
// channels; each warp adds every kWarps-th pixel.
template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads) mean_pixels(const GlobalPoolArgsOf<Stored> args, uint32_t tiles) {
  REPRISE_SHARED(float, shared, kWidth * kBlockThreads);
  const uint64_t C = args.C;
  for (uint64_t b = blockIdx.x; b < uint64_t{args.N} * tiles; b += gridDim.x) {
    const uint64_t n = b / tiles, c = (b % tiles * kWarpLanes + lane_index()) * kWidth;
    const uint32_t positions = pooled_positions(args, n);
    float sums[kWidth] = {};
    for (uint64_t i = warp_index(); c < C && i < positions; i += kWarps) {
      const Pack<kWidth> x = load_pack<kWidth>(args.in + (n * args.HW + i) * C + c);
      REPRISE_UNROLL
      for (uint32_t k = 0; k < kWidth; ++k) sums[k] += x.at[k];
    }
    const float sum = sum_across_warps<kWarps>(shared, sums);
    if (warp_index() < kWidth && c < C) args.out[n * C + c + warp_index()] = sum / static_cast<float>(positions);
  }
}

template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads) scatter_pixels(const GlobalPoolArgsOf<Stored> args, uint64_t packs) {
  const float of_all = 1.0f / static_cast<float>(args.HW);
  const uint64_t of_pixel = args.C / kWidth, of_image = of_pixel * args.HW;
  for (uint64_t i = grid_thread(); i < packs; i += grid_threads()) {
    float scale = of_all;
    if (args.document_start != nullptr) {
      const uint32_t positions = pooled_positions(args, i / of_image);
      scale = i % of_image / of_pixel < positions ? 1.0f / static_cast<float>(positions) : 0.0f;
    }
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
Status cuda_avg_pool_forward(const KernelContext& context, const AvgPoolArgsOf<Stored>& args) {
  const PoolShape& s = args.shape;
  const uint32_t width = width_for<Stored>(s.C);
  const auto kernel = width > 1 ? avg_pool_windows<kPackWidth<Stored>, Stored> : avg_pool_windows<1, Stored>;
  const uint64_t packs = uint64_t{s.N} * s.P * s.Q * s.C / width;
  REPRISE_LAUNCH(kernel, blocks_for(packs), kBlockThreads, context.queue, args, packs);
  return launch_status();
}

template <typename Stored>
Status cuda_avg_pool_backward(const KernelContext& context, const AvgPoolArgsOf<Stored>& args) {
  const PoolShape& s = args.shape;
  const uint32_t width = width_for<Stored>(s.C);
  const auto kernel = width > 1 ? avg_pool_gather<kPackWidth<Stored>, Stored> : avg_pool_gather<1, Stored>;
  const uint64_t packs = uint64_t{s.N} * s.H * s.W * s.C / width;
  REPRISE_LAUNCH(kernel, blocks_for(packs), kBlockThreads, context.queue, args, packs);
  return launch_status();
}

template <typename Stored>
Status cuda_global_pool_forward(const KernelContext& context, const GlobalPoolArgsOf<Stored>& args) {
  const uint32_t width = width_for<Stored>(args.C);
  const auto kernel = width > 1 ? mean_pixels<kPackWidth<Stored>, Stored> : mean_pixels<1, Stored>;
  const auto tiles = static_cast<uint32_t>(parts(args.C, width * kWarpLanes));
  const uint64_t blocks = maximum(1, minimum(uint64_t{args.N} * tiles, kMaxBlocks));
  REPRISE_LAUNCH(kernel, static_cast<uint32_t>(blocks), kBlockThreads, context.queue, args, tiles);
  return launch_status();
}

template <typename Stored>
Status cuda_global_pool_backward(const KernelContext& context, const GlobalPoolArgsOf<Stored>& args) {
  const uint32_t width = width_for<Stored>(args.C);
  const auto kernel = width > 1 ? scatter_pixels<kPackWidth<Stored>, Stored> : scatter_pixels<1, Stored>;
  const uint64_t packs = uint64_t{args.N} * args.HW * args.C / width;
  REPRISE_LAUNCH(kernel, blocks_for(packs), kBlockThreads, context.queue, args, packs);
  return launch_status();
}

REPRISE_CUDA_INSTANTIATE(cuda_max_pool_forward, MaxPoolForwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_max_pool_backward, MaxPoolBackwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_avg_pool_forward, AvgPoolArgs)
REPRISE_CUDA_INSTANTIATE(cuda_avg_pool_backward, AvgPoolArgs)
REPRISE_CUDA_INSTANTIATE(cuda_global_pool_forward, GlobalPoolArgs)
REPRISE_CUDA_INSTANTIATE(cuda_global_pool_backward, GlobalPoolArgs)

}  // namespace reprise
