// Convolutions of x, or of relu(norm(x)), as matrix products over pixels: forward, and the
// gradients of input and weight. The counterpart of lib/cpu/conv/conv.cpp. conv_groups.h has
// convolutions in groups. Operands in chunks are multiplied on tensor cores or by the f32 tile. The
// choice depends on the type of the activations and on the math of the backend.
#include "cuda/conv/conv_chunks.h"
#include "cuda/conv/conv_groups.h"
#include "cuda/conv/conv_rules.h"
#include "cuda/conv/conv_source.h"
#include "cuda/cuda_kernels.h"
#include "cuda/gemm/split_product.h"
#include "cuda/gemm/tile_product.h"

namespace reprise {
namespace {

// Checks that pixels and window elements can be counted in 32 bits, as kernels do.
Status fits(const ConvShape& s) {
  const uint64_t inputs = uint64_t{s.N} * s.H * s.W,
                 maximum = conv_output_pixels(s) > inputs ? conv_output_pixels(s) : inputs;
  if (maximum < 0xffff0000u && conv_window_elements(s) < 0xffff0000u) return ok_status();
  return {Code::kBackend, "a convolution on CUDA must have fewer than 2^32 pixels; detail is their number", maximum};
}

constexpr uint32_t kMomentWarps = 32;

// The moments of some rows of one column: the mean, the sum of squared deviations, and the number
// of rows. add() merges the moments of further rows (Chan, Golub & LeVeque 1983, equation 2.1).
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

// Computes mean and rstd of each column from the moments of tiles of rows. A warp adds consecutive
// tiles for 32 columns, one column in each lane. Then the warps' sums are added in order.
static __global__ void __launch_bounds__(kMomentWarps* kWarpLanes)
    finish_moments(float* mean, float* rstd, const float* moments, ProductShape shape, uint32_t tile_rows,
                   double epsilon) {
  REPRISE_SHARED(double, shared, 3 * kMomentWarps * kWarpLanes);
  const uint64_t column = uint64_t{blockIdx.x} * kWarpLanes + lane_index();
  const uint64_t tiles = parts(shape.rows, tile_rows), run = parts(tiles, kMomentWarps);
  Moments sum;
  for (uint64_t tile = warp_index() * run; column < shape.columns && tile < minimum(tiles, (warp_index() + 1) * run);
       ++tile) {
    const float* of_tile = moments + tile * 2 * shape.columns + column;
    sum.add(of_tile[0], of_tile[shape.columns], static_cast<double>(minimum(tile_rows, shape.rows - tile * tile_rows)));
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

// ---- forward ----

// Launches the forward for operands in chunks.
template <bool kNormed, typename Stored>
void launch_forward_chunks(const KernelContext& context, const ConvForwardArgsOf<Stored>& args,
                           const ChunkNorm<kNormed>& norm, const TileOutput<Stored>& output, float* moments) {
  const ConvShape& s = args.shape;
  const WindowAttribute& a = s.window;
  const ProductShape shape = conv_forward_product(s);
  const WindowChunks<kNormed, Stored> pixels{norm,
                                             args.x,
                                             {s.H, s.P, a.kernel_h, a.stride_h, -static_cast<int32_t>(a.pad_top)},
                                             {s.W, s.Q, a.kernel_w, a.stride_w, -static_cast<int32_t>(a.pad_left)},
                                             1,
                                             s.C / kPackWidth<Stored>,
                                             static_cast<uint32_t>(conv_output_pixels(s))};
  using Product = TileProduct<WindowChunks<kNormed, Stored>, RowChunks<Stored>, TileOutput<Stored>>;
  const RowChunks<Stored> w{chunk_weights<Stored>(context, args.w, shape.columns * shape.depth, args.scratch),
                            shape.columns, shape.depth};
  launch_chunk_product<true>(context, Product{pixels, w, output, shape, shape.depth, moments});
}

// ---- the gradient of the input ----

template <typename Stored>
void launch_phase(const KernelContext& context, const ConvBackwardDataArgsOf<Stored>& args, const ConvPhases& phases,
                  const Stored* weights) {
  const uint64_t inputs = phases.inputs(args.shape.N);
  if (inputs == 0) return;
  const ConvShape& s = args.shape;
  using Output = TileOutput<Stored, PhaseRows>;
  const ProductShape shape{inputs, s.C, phases.taps() * s.K};
  const Output output{args.dx, {s, phases}, args.b, args.accumulate_dx, shape.columns % 4 == 0, 0};
  if (weights != nullptr) {
    const ConvPhase &rows = phases.rows, &columns = phases.columns;
    const WindowChunks<false, Stored> pixels{{},
                                             args.dy,
                                             {s.P, rows.inputs, rows.taps, 1, rows.offset},
                                             {s.Q, columns.inputs, columns.taps, 1, columns.offset},
                                             -1,
                                             s.K / kPackWidth<Stored>,
                                             static_cast<uint32_t>(inputs)};
    using Product = TileProduct<WindowChunks<false, Stored>, PhaseTapChunks<Stored>, Output>;
    return launch_chunk_product(context, Product{pixels, {weights, s, phases}, output, shape, shape.depth, nullptr});
  }
  launch_product(context, TileProduct<GradientPixelsSource<Stored>, PhaseTapsSource<Stored>, Output>{
                              {args.dy, s, phases, static_cast<uint32_t>(inputs)},
                              {args.w, s, phases},
                              output,
                              shape,
                              shape.depth,
                              nullptr});
}

// ---- the gradient of the weight ----

template <bool kNormed, typename Stored>
Status launch_weight_chunks(const KernelContext& context, const ConvBackwardWeightArgsOf<Stored>& args,
                            const SplitOutput& to, const ChunkNorm<kNormed>& norm) {
  const ProductShape& shape = to.shape;
  const ColumnChunks<Stored> dy{args.dy, shape.rows, shape.rows};
  const TapChunks<kNormed, Stored> taps{norm, args.x, args.shape, args.shape.C / kPackWidth<Stored>,
                                        static_cast<uint32_t>(shape.columns)};
  return launch_split_chunks(context, dy, taps, to);
}

}  // namespace

template <typename Stored>
Status cuda_conv_forward(const KernelContext& context, const ConvForwardArgsOf<Stored>& args) {
  REPRISE_RETURN_IF_ERROR(fits(args.shape));
  if (is_in_groups(args.shape)) return launch_groups_forward(context, args);
  const ProductShape shape = conv_forward_product(args.shape);
  const bool uses_mma = conv_forward_uses_mma(kStoredAs<Stored>, args.shape);
  const uint64_t weights_bytes = conv_weights_scratch_bytes(uses_mma, args.w.type, args.shape);
  float* moments = args.mean == nullptr
                       ? nullptr
                       : reinterpret_cast<float*>(static_cast<unsigned char*>(args.scratch) + weights_bytes);
  const TileSides tile =
      conv_forward_tile(kStoredAs<Stored>, args.w.type, args.shape, product_math(context), card_size(context));
  TileOutput<Stored> output{args.y, {shape.columns}, args.b, false, shape.columns % 4 == 0, 0};
  if (uses_mma) output.wide = are_chunks(shape.columns);
  if (conv_forward_takes_chunks(kStoredAs<Stored>, args.w.type, args.shape)) {
    args.norm.mean == nullptr ? launch_forward_chunks(context, args, ChunkNorm<false>{}, output, moments)
                              : launch_forward_chunks(context, args, ChunkNorm<true>{args.norm}, output, moments);
  } else {
    launch_product<true>(context, TileProduct<PixelsSource<Stored>, WeightRowsSource<Stored>, TileOutput<Stored>>{
                                      {{args.x, args.norm}, args.shape, static_cast<uint32_t>(shape.rows)},
                                      {args.w, shape.columns, shape.depth},
                                      output,
                                      shape,
                                      shape.depth,
                                      moments});
  }
  if (moments != nullptr) {
    REPRISE_LAUNCH(finish_moments, static_cast<uint32_t>(parts(shape.columns, kWarpLanes)), kMomentWarps * kWarpLanes,
                   context.queue, args.mean, args.rstd, moments, shape, tile.rows,
                   static_cast<double>(args.shape.window.statistics_epsilon));
  }
  return launch_status();
}

template <typename Stored>
Status cuda_conv_backward_weight(const KernelContext& context, const ConvBackwardWeightArgsOf<Stored>& args) {
  REPRISE_RETURN_IF_ERROR(fits(args.shape));
  if (is_in_groups(args.shape)) return launch_groups_backward_weight(context, args);
  const ProductShape shape = conv_weight_product(args.shape);
  const CardSize card = card_size(context);
  const DepthSplit split =
      split_depth(shape, conv_weight_tile(kStoredAs<Stored>, args.shape, product_math(context), card), card);
  const SplitOutput to{args.dw, static_cast<float*>(args.scratch), shape, split, args.accumulate_dw};
  if (conv_backward_takes_chunks(kStoredAs<Stored>, kStoredAs<Stored>, args.shape)) {
    return args.norm.mean == nullptr ? launch_weight_chunks(context, args, to, ChunkNorm<false>{})
                                     : launch_weight_chunks(context, args, to, ChunkNorm<true>{args.norm});
  }
  const ColumnsSource<Stored> dy{args.dy, shape.rows, shape.rows};
  const TapsSource<Stored> taps{{args.x, args.norm}, args.shape, static_cast<uint32_t>(shape.columns)};
  return launch_split_product(context, dy, taps, to);
}

template <typename Stored>
Status cuda_conv_backward_data(const KernelContext& context, const ConvBackwardDataArgsOf<Stored>& args) {
  REPRISE_RETURN_IF_ERROR(fits(args.shape));
  const ConvShape& s = args.shape;
  if (is_in_groups(s)) return launch_groups_backward_data(context, args);
  const Stored* weights = nullptr;  // null if operands are not read in chunks
  if (conv_backward_takes_chunks(kStoredAs<Stored>, args.w.type, s)) {
    weights = chunk_weights<Stored>(context, args.w, s.K * conv_window_elements(s), args.scratch);
  }
  for (uint32_t row = 0; row < s.window.stride_h; ++row) {
    for (uint32_t column = 0; column < s.window.stride_w; ++column) {
      const ConvPhases phases{conv_phase(s.H, s.window.rows(), row), conv_phase(s.W, s.window.columns(), column)};
      launch_phase(context, args, phases, weights);
    }
  }
  return launch_status();
}

REPRISE_CUDA_INSTANTIATE(cuda_conv_forward, ConvForwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_conv_backward_data, ConvBackwardDataArgs)
REPRISE_CUDA_INSTANTIATE(cuda_conv_backward_weight, ConvBackwardWeightArgs)

}  // namespace reprise
