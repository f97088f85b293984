// Linear layers: forward, and the gradients of input, weight and bias. All but the bias are one product each.
// Here as the twin of lib/cpu/linear.cpp.
#include <type_traits>

#include "cuda/cuda_kernels.h"
#include "cuda/linear_scratch.h"
#include "cuda/tile_mma.h"
#include "cuda/tile_product.h"
#include "cuda/tile_source.h"

namespace reprise {
namespace {

// A product of activations and weights: C[M, columns] += a[M, depth] w, where w is [columns, depth], or [depth, columns] when it is
// stored by depth.
template <typename Stored>
struct WeighedRows {
  Stored* to;
  const Stored* a;
  Weight w;
  const float* bias;
  ProductShape shape;
  bool by_depth, accumulate;
  void* scratch;
};
template <typename W>
Status weigh_rows_mma(const KernelContext& context, const WeighedRows<Bf16>& r, const W& w, const TileOutput<Bf16>& output) {
  const RowChunks a{r.a, r.shape.rows, r.shape.depth};
  launch_mma(context, TileProduct<RowChunks, W, TileOutput<Bf16>>{a, w, output, r.shape, r.shape.depth, nullptr});
  return launch_status();
}
template <typename Stored>
Status weigh_rows(const KernelContext& context, const WeighedRows<Stored>& r) {
  const ProductShape& s = r.shape;
  const TileOutput<Stored> output{r.to, {s.columns}, r.bias, r.accumulate, s.columns % 4 == 0, 0};
  const auto by_simt = [&](const auto& w) {
    const RowsSource<Stored> a{r.a, s.rows, s.depth};
    using Product = TileProduct<RowsSource<Stored>, std::decay_t<decltype(w)>, TileOutput<Stored>>;
    launch_product(context, Product{a, w, output, s, s.depth, nullptr});
    return launch_status();
  };
  if constexpr (kStoredAs<Stored> == DType::kBf16) {
    if (linear_uses_mma(DType::kBf16, s.columns, s.depth)) {
      const Bf16* w = weights_as_bf16(context, r.w, s.columns * s.depth, r.scratch);
      return r.by_depth ? weigh_rows_mma(context, r, ColumnChunks{w, s.columns, s.columns}, output)
                        : weigh_rows_mma(context, r, RowChunks{w, s.columns, s.depth}, output);
    }
  }
  if (r.by_depth) return by_simt(WeightColumnsSource<Stored>{r.w, s.columns, s.columns});
  return by_simt(WeightRowsSource<Stored>{r.w, s.columns, s.depth});
}

constexpr uint32_t kColumnWarps = 8;

// partials[chunk][columns]: a block takes 32 columns of a chunk, a lane one column, the warps its rows in turns.
template <typename Stored>
__global__ void __launch_bounds__(kColumnWarps * kWarpLanes)
    sum_columns_of_chunk(float* partials, const Stored* x, uint64_t rows, uint32_t columns, uint64_t chunk_rows) {
  REPRISE_SHARED(float, shared, kColumnWarps * kWarpLanes);
  const uint64_t column = uint64_t{blockIdx.x} * kWarpLanes + lane_index();
  const uint64_t begin = blockIdx.y * chunk_rows, end = least(rows, begin + chunk_rows);
  float sum = 0;
  for (uint64_t row = begin + warp_index(); column < columns && row < end; row += kColumnWarps) sum += x[row * columns + column];
  const float values[1] = {sum};
  const float total = sum_across_warps<kColumnWarps>(shared, values);
  if (warp_index() == 0 && column < columns) partials[blockIdx.y * uint64_t{columns} + column] = total;
}

}  // namespace

template <typename Stored>
Status cuda_linear_forward(const KernelContext& context, const LinearForwardArgsOf<Stored>& args) {
  return weigh_rows<Stored>(context, {args.y, args.x, args.w, args.b, {args.M, args.K, args.C}, args.input_major, false, args.scratch});
}

template <typename Stored>
Status cuda_linear_backward_data(const KernelContext& context, const LinearBackwardDataArgsOf<Stored>& args) {
  return weigh_rows<Stored>(context,
                            {args.dx, args.dy, args.w, nullptr, {args.M, args.C, args.K}, !args.input_major, args.accumulate_dx, args.scratch});
}

template <typename Stored>
Status cuda_linear_backward_weight(const KernelContext& context, const LinearBackwardWeightArgsOf<Stored>& args) {
  const ProductShape shape = linear_weight_product(args.M, args.C, args.K, args.input_major);
  const CardSize card = card_size(context);
  const DepthSplit split = split_depth(shape, linear_weight_tile(shape, kStoredAs<Stored>, card), card);
  const SplitOutput to{args.dw, static_cast<float*>(args.scratch), shape, split, args.accumulate_dw};
  const Stored *a = args.input_major ? args.x : args.dy, *b = args.input_major ? args.dy : args.x;
  if constexpr (kStoredAs<Stored> == DType::kBf16) {
    if (linear_uses_mma(DType::kBf16, args.C, args.K)) {
      launch_mma(context, TileProduct<ColumnChunks, ColumnChunks, TileOutput<float>>{
                              {a, shape.rows, shape.rows}, {b, shape.columns, shape.columns}, to.output(), shape, split.size, nullptr},
                 split.count);
      return to.finish(context);
    }
  }
  return launch_split_product(context, ColumnsSource<Stored>{a, shape.rows, shape.rows}, ColumnsSource<Stored>{b, shape.columns, shape.columns},
                              to);
}

template <typename Stored>
Status cuda_linear_backward_bias(const KernelContext& context, const LinearBackwardBiasArgsOf<Stored>& args) {
  const DepthSplit chunks = split_rows_of_columns(args.M);
  float* partials = static_cast<float*>(args.scratch);
  const dim3 grid(static_cast<uint32_t>(parts(args.K, kWarpLanes)), chunks.count);
  REPRISE_LAUNCH(sum_columns_of_chunk<Stored>, grid, kColumnWarps * kWarpLanes, context.queue, partials, args.dy, args.M, args.K,
                 chunks.size);
  REPRISE_LAUNCH(add_parts, blocks_for(args.K), kBlockThreads, context.queue, args.db, partials, uint64_t{args.K}, chunks.count,
                 args.accumulate_db);
  return launch_status();
}

REPRISE_CUDA_INSTANTIATE(cuda_linear_forward, LinearForwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_linear_backward_data, LinearBackwardDataArgs)
REPRISE_CUDA_INSTANTIATE(cuda_linear_backward_weight, LinearBackwardWeightArgs)
REPRISE_CUDA_INSTANTIATE(cuda_linear_backward_bias, LinearBackwardBiasArgs)

}  // namespace reprise
