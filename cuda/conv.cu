// Convolutions as products over pixels, forward and the gradients of input and weight; of x, or of relu(norm(x)).
// Here as the twin of lib/cpu/conv.cpp.
#include "cuda/conv_scratch.h"
#include "cuda/conv_source.h"
#include "cuda/cuda_kernels.h"
#include "cuda/tile_product.h"

namespace reprise {
namespace {

// Pixels and window elements are counted in 32 bits within the kernels.
Status fits(const ConvShape& s) {
  const uint64_t inputs = uint64_t{s.N} * s.H * s.W, most = conv_output_pixels(s) > inputs ? conv_output_pixels(s) : inputs;
  if (most < 0xffff0000u && conv_window_elements(s) < 0xffff0000u) return ok_status();
  return {Code::kBackend, "a convolution on CUDA must have fewer than 2^32 pixels; detail is their number", most};
}

constexpr uint32_t kMomentWarps = 8;

// Mean, squared deviations and number of some rows of a column, and of more rows (Chan, Golub & LeVeque 1983, equation 2.1).
struct Moments {
  double mean = 0, deviation = 0, count = 0;
  __device__ void add(double other_mean, double other_deviation, double other_count) {
    if (other_count == 0) return;
    const double total = count + other_count, difference = other_mean - mean;
    deviation += other_deviation + difference * difference * (count * other_count / total);
    mean += difference * (other_count / total);
    count = total;
  }
};

// mean and rstd of each column from the moments of tiles of rows: a warp adds up a run of tiles, a lane for each column, then the runs.
static __global__ void __launch_bounds__(kMomentWarps * kWarpLanes)
    finish_moments(float* mean, float* rstd, const float* moments, ProductShape shape, uint32_t tile_rows, double epsilon) {
  REPRISE_SHARED(double, shared, 3 * kMomentWarps * kWarpLanes);
  const uint64_t column = uint64_t{blockIdx.x} * kWarpLanes + lane_index();
  const uint64_t tiles = parts(shape.rows, tile_rows), run = parts(tiles, kMomentWarps);
  Moments sum;
  for (uint64_t tile = warp_index() * run; column < shape.columns && tile < least(tiles, (warp_index() + 1) * run); ++tile) {
    const float* of_tile = moments + tile * 2 * shape.columns + column;
    sum.add(of_tile[0], of_tile[shape.columns], static_cast<double>(least(tile_rows, shape.rows - tile * tile_rows)));
  }
  constexpr uint32_t kEach = kMomentWarps * kWarpLanes;
  shared[threadIdx.x] = sum.mean;
  shared[kEach + threadIdx.x] = sum.deviation;
  shared[2 * kEach + threadIdx.x] = sum.count;
  __syncthreads();
  if (warp_index() != 0 || column >= shape.columns) return;
  for (uint32_t warp = 1; warp < kMomentWarps; ++warp) {
    const uint32_t at = warp * kWarpLanes + lane_index();
    sum.add(shared[at], shared[kEach + at], shared[2 * kEach + at]);
  }
  mean[column] = static_cast<float>(sum.mean);
  rstd[column] = static_cast<float>(1.0 / sqrt(sum.deviation / sum.count + epsilon));
}

template <typename Stored>
void launch_phase(const KernelContext& context, const ConvBackwardDataArgsOf<Stored>& args, const ConvPhases& phases) {
  const uint64_t inputs = phases.inputs(args.shape.N);
  if (inputs == 0) return;
  using Output = TileOutput<Stored, PhaseRows>;
  const ProductShape shape{inputs, args.shape.C, phases.taps() * args.shape.K};
  launch_product(context, TileProduct<GradientPixelsSource<Stored>, PhaseTapsSource<Stored>, Output>{
                              {args.dy, args.shape, phases, static_cast<uint32_t>(inputs)},
                              {args.w, args.shape, phases},
                              {args.dx, {args.shape, phases}, nullptr, args.accumulate_dx, shape.columns % 4 == 0, 0},
                              shape,
                              shape.depth,
                              nullptr});
}

}  // namespace

template <typename Stored>
Status cuda_conv_forward(const KernelContext& context, const ConvForwardArgsOf<Stored>& args) {
  REPRISE_RETURN_IF_ERROR(fits(args.shape));
  const ProductShape shape = conv_forward_product(args.shape);
  float* moments = args.mean == nullptr ? nullptr : static_cast<float*>(args.scratch);
  const TileProduct<PixelsSource<Stored>, WeightRowsSource<Stored>, TileOutput<Stored>> product{
      {{args.x, args.norm}, args.shape, static_cast<uint32_t>(shape.rows)},
      {args.w, shape.columns, shape.depth},
      {args.y, {shape.columns}, nullptr, false, shape.columns % 4 == 0, 0},
      shape,
      shape.depth,
      moments};
  launch_product<true>(context, product);
  if (moments != nullptr) {
    REPRISE_LAUNCH(finish_moments, static_cast<uint32_t>(parts(shape.columns, kWarpLanes)), kMomentWarps * kWarpLanes, context.queue,
                   args.mean, args.rstd, moments, shape, product_side(shape), static_cast<double>(args.shape.window.epsilon));
  }
  return launch_status();
}

template <typename Stored>
Status cuda_conv_backward_weight(const KernelContext& context, const ConvBackwardWeightArgsOf<Stored>& args) {
  REPRISE_RETURN_IF_ERROR(fits(args.shape));
  const ProductShape shape = conv_weight_product(args.shape);
  const ColumnsSource<Stored> dy{args.dy, shape.rows, shape.rows};
  const TapsSource<Stored> taps{{args.x, args.norm}, args.shape, static_cast<uint32_t>(shape.columns)};
  return launch_split_product(context, dy, taps, {args.dw, static_cast<float*>(args.scratch), shape, split_depth(shape, product_side(shape)), args.accumulate_dw});
}

template <typename Stored>
Status cuda_conv_backward_data(const KernelContext& context, const ConvBackwardDataArgsOf<Stored>& args) {
  REPRISE_RETURN_IF_ERROR(fits(args.shape));
  const ConvShape& s = args.shape;
  for (uint32_t row = 0; row < s.window.stride; ++row) {
    for (uint32_t column = 0; column < s.window.stride; ++column) {
      launch_phase(context, args, {conv_phase(s.H, s.window.kernel_h, s.window, row), conv_phase(s.W, s.window.kernel_w, s.window, column)});
    }
  }
  return launch_status();
}

REPRISE_CUDA_INSTANTIATE(cuda_conv_forward, ConvForwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_conv_backward_data, ConvBackwardDataArgs)
REPRISE_CUDA_INSTANTIATE(cuda_conv_backward_weight, ConvBackwardWeightArgs)

}  // namespace reprise
