// Convolutions in groups of channels, including depthwise convolutions: forward, and the gradients
// of input and weight, pixel by pixel. They are not computed as matrix products, because the
// product of a group is too narrow for the tiles of tile_product.h. Also, memory bounds the time of
// a depthwise convolution. A thread computes a pack of neighbouring channels if each group has one
// input and one output, or else one channel.
#pragma once

#include "cuda/conv/conv_rules.h"
#include "cuda/conv/conv_source.h"
#include "cuda/cuda_kernels.h"
#include "cuda/grid.h"
#include "cuda/reduce.h"

namespace reprise {

// True if each group has one input and one output channel, and the channels fill whole packs.
template <typename Stored>
bool has_whole_packs(const ConvShape& s) {
  return s.group_inputs() == 1 && s.group_outputs() == 1 && s.C % kPackWidth<Stored> == 0;
}

// Returns weight `at` of each of the kWidth output channels from k on. A channel has `elements`
// weights.
template <uint32_t kWidth, typename Stored>
__device__ Pack<kWidth> weights_of(const Weight& w, uint64_t elements, uint64_t k, uint64_t at) {
  Pack<kWidth> pack;
  REPRISE_UNROLL
  for (uint32_t i = 0; i < kWidth; ++i) pack.at[i] = weight_as<Stored>(w, (k + i) * elements + at);
  return pack;
}
template <uint32_t kWidth>
__device__ void add_product(Pack<kWidth>& sum, const Pack<kWidth>& a, const Pack<kWidth>& b) {
  REPRISE_UNROLL
  for (uint32_t i = 0; i < kWidth; ++i) sum.at[i] = fmaf(a.at[i], b.at[i], sum.at[i]);
}

// Computes y; a thread computes a pack of channels of one pixel.
template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads) convolve_groups(const ConvForwardArgsOf<Stored> args, uint64_t packs) {
  const ConvShape s = args.shape;
  const uint32_t inputs = s.group_inputs(), taps = uint32_t{s.window.kernel_h} * s.window.kernel_w,
                 of_pixel = s.K / kWidth;
  for (uint64_t i = grid_thread(); i < packs; i += grid_threads()) {
    const uint32_t output = static_cast<uint32_t>(i / of_pixel), k = static_cast<uint32_t>(i % of_pixel) * kWidth;
    const uint32_t first = k / s.group_outputs() * inputs;
    Pack<kWidth> sum = {};
    if (args.b != nullptr) sum = load_pack<kWidth>(args.b + k);
    for (uint32_t tap = 0; tap < taps; ++tap) {
      const WindowPixel at(s, output, tap / s.window.kernel_w, tap % s.window.kernel_w);
      if (!at.inside) continue;
      for (uint32_t c = 0; c < inputs; ++c) {
        const Pack<kWidth> x = load_pack<kWidth>(args.x + at.pixel * s.C + first + c);
        add_product(sum, x, weights_of<kWidth, Stored>(args.w, uint64_t{taps} * inputs, k, uint64_t{tap} * inputs + c));
      }
    }
    store_pack(args.y + i * kWidth, sum);
  }
}

// In one dimension, the output whose window reads `position` of the padded input with tap t.
// `inside` is false if there is no such output.
struct CoveringOutput {
  uint32_t output;
  bool inside;

  __device__ CoveringOutput(uint32_t position, uint32_t t, uint32_t outputs, const WindowSide& side) {
    const uint32_t start = position - t * side.dilation;  // wraps to a huge number if the difference is negative
    output = start / side.stride;
    inside = output * side.stride == start && output < outputs;
  }
};

// Computes dx; a thread computes a pack of channels of one pixel.
template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads)
    gather_groups(const ConvBackwardDataArgsOf<Stored> args, uint64_t packs) {
  const ConvShape s = args.shape;
  const WindowSide rows = s.window.rows(), columns = s.window.columns();
  const uint32_t inputs = s.group_inputs(), outputs = s.group_outputs(), of_pixel = s.C / kWidth;
  const uint64_t elements = uint64_t{rows.kernel} * columns.kernel * inputs;
  for (uint64_t i = grid_thread(); i < packs; i += grid_threads()) {
    const uint32_t pixel = static_cast<uint32_t>(i / of_pixel), line = pixel / s.W,
                   c = static_cast<uint32_t>(i % of_pixel) * kWidth;
    const uint32_t first = c / inputs * outputs;
    Pack<kWidth> sum = {};
    if (args.b != nullptr) sum = load_pack<kWidth>(args.b + c);
    for (uint32_t r = 0; r < rows.kernel; ++r) {
      const CoveringOutput p(line % s.H + rows.pad, r, s.P, rows);
      if (!p.inside) continue;
      for (uint32_t t = 0; t < columns.kernel; ++t) {
        const CoveringOutput q(pixel % s.W + columns.pad, t, s.Q, columns);
        if (!q.inside) continue;
        const uint64_t output = (uint64_t{line / s.H} * s.P + p.output) * s.Q + q.output;
        for (uint32_t k = first; k < first + outputs; ++k) {
          const Pack<kWidth> dy = load_pack<kWidth>(args.dy + output * s.K + k);
          add_product(sum, dy,
                      weights_of<kWidth, Stored>(args.w, elements, k,
                                                 uint64_t{r * columns.kernel + t} * inputs + c % inputs));
        }
      }
    }
    if (args.accumulate_dx) {
      const Pack<kWidth> before = load_pack<kWidth>(args.dx + i * kWidth);
      REPRISE_UNROLL
      for (uint32_t j = 0; j < kWidth; ++j) sum.at[j] += before.at[j];
    }
    store_pack(args.dx + i * kWidth, sum);
  }
}

constexpr uint32_t kGroupWarps = 8;

// Writes partials[part][element of the window][K]. A block sums one element of the window for 32
// output channels over one part of the pixels. A lane sums one channel; each warp adds every
// kGroupWarps-th pixel.
template <typename Stored>
__global__ void __launch_bounds__(kGroupWarps * kWarpLanes)
    sum_groups(float* partials, const ConvBackwardWeightArgsOf<Stored> args, uint64_t part_pixels) {
  REPRISE_SHARED(float, shared, kGroupWarps * kWarpLanes);
  const ConvShape s = args.shape;
  const uint32_t inputs = s.group_inputs(), k = blockIdx.x * kWarpLanes + lane_index(), element = blockIdx.y,
                 tap = element / inputs;
  const uint32_t c = k / s.group_outputs() * inputs + element % inputs;
  const uint64_t begin = blockIdx.z * part_pixels, end = minimum(conv_output_pixels(s), begin + part_pixels);
  float sum = 0;
  for (uint64_t output = begin + warp_index(); k < s.K && output < end; output += kGroupWarps) {
    const WindowPixel at(s, static_cast<uint32_t>(output), tap / s.window.kernel_w, tap % s.window.kernel_w);
    if (at.inside) sum = fmaf(float{args.dy[output * s.K + k]}, float{args.x[at.pixel * s.C + c]}, sum);
  }
  const float values[1] = {sum};
  const float total = sum_across_warps<kGroupWarps>(shared, values);
  if (warp_index() == 0 && k < s.K) partials[(uint64_t{blockIdx.z} * gridDim.y + element) * s.K + k] = total;
}

// Adds the parts in their order. Writes the sum to dw[K][elements], or adds it if `accumulate`.
static __global__ void __launch_bounds__(kBlockThreads)
    add_group_parts(float* dw, const float* partials, uint32_t K, uint32_t elements, uint32_t count, bool accumulate) {
  const uint64_t n = uint64_t{K} * elements;
  for (uint64_t i = grid_thread(); i < n; i += grid_threads()) {
    const float* of_first = partials + i % elements * K + i / elements;
    float sum = of_first[0];
    for (uint32_t part = 1; part < count; ++part) sum += of_first[part * n];
    dw[i] = accumulate ? dw[i] + sum : sum;
  }
}

template <typename Stored>
Status launch_groups_forward(const KernelContext& context, const ConvForwardArgsOf<Stored>& args) {
  const ConvShape& s = args.shape;
  const bool whole = has_whole_packs<Stored>(s);
  const auto kernel = whole ? convolve_groups<kPackWidth<Stored>, Stored> : convolve_groups<1, Stored>;
  const uint64_t packs = conv_output_pixels(s) * s.K / (whole ? kPackWidth<Stored> : 1);
  REPRISE_LAUNCH(kernel, blocks_for(packs), kBlockThreads, context.queue, args, packs);
  if (args.mean == nullptr) return launch_status();
  return cuda_batch_norm_statistics<Stored>(context, {.mean = args.mean,
                                                      .rstd = args.rstd,
                                                      .x = args.y,
                                                      .scratch = args.scratch,
                                                      .scratch_bytes = args.scratch_bytes,
                                                      .M = conv_output_pixels(s),
                                                      .C = s.K,
                                                      .epsilon = s.window.statistics_epsilon});
}

template <typename Stored>
Status launch_groups_backward_data(const KernelContext& context, const ConvBackwardDataArgsOf<Stored>& args) {
  const ConvShape& s = args.shape;
  const bool whole = has_whole_packs<Stored>(s);
  const auto kernel = whole ? gather_groups<kPackWidth<Stored>, Stored> : gather_groups<1, Stored>;
  const uint64_t packs = uint64_t{s.N} * s.H * s.W * s.C / (whole ? kPackWidth<Stored> : 1);
  REPRISE_LAUNCH(kernel, blocks_for(packs), kBlockThreads, context.queue, args, packs);
  return launch_status();
}

template <typename Stored>
Status launch_groups_backward_weight(const KernelContext& context, const ConvBackwardWeightArgsOf<Stored>& args) {
  const ConvShape& s = args.shape;
  const uint32_t elements = static_cast<uint32_t>(conv_window_elements(s));
  if (elements > 65535)
    return {Code::kBackend, "a group's window on CUDA must have at most 65535 elements; detail is their number",
            elements};
  const DepthSplit split = conv_group_parts(s);
  float* partials = static_cast<float*>(args.scratch);
  const dim3 grid(static_cast<uint32_t>(parts(s.K, kWarpLanes)), elements, split.count);
  REPRISE_LAUNCH(sum_groups<Stored>, grid, kGroupWarps * kWarpLanes, context.queue, partials, args, split.size);
  REPRISE_LAUNCH(add_group_parts, blocks_for(uint64_t{s.K} * elements), kBlockThreads, context.queue, args.dw, partials,
                 s.K, elements, split.count, args.accumulate_dw);
  return launch_status();
}

}  // namespace reprise
