// Linear layers: forward, and the gradients of input, weight and bias. Each is one product, except
// the gradient of the bias. A low-rank adapter is additional depth of the product, so that a result
// is rounded once. The counterpart of lib/cpu/gemm/linear.cpp.
#include <type_traits>

#include "cuda/cuda_kernels.h"
#include "cuda/gemm/linear_rules.h"
#include "cuda/gemm/split_product.h"
#include "cuda/gemm/tile_mma.h"
#include "cuda/gemm/tile_product.h"
#include "cuda/gemm/tile_source.h"

namespace reprise {
namespace {

// The arguments of a product of activations and weights,
//   to[M, columns] (+)= scale * a[M, depth] w + bias.
// w is [columns, depth], or [depth, columns] if by_depth. An adapter adds h u^T with
// u[columns, rank]. The adapter's rank is additional depth of the same sums, after the depth of w.
template <typename Stored>
struct WeighedRows {
  Stored* to;
  const Stored* a;
  Weight w;
  const float* bias;
  ProductShape shape;
  bool by_depth, accumulate;
  void* scratch;
  float scale = 1;
  const Stored* h = nullptr;
  Weight u = {};
  uint64_t rank = 0;
};

// An output that multiplies a product by `factor` and then stores it as TileOutput does.
template <typename Stored>
struct ScaledOutput : TileOutput<Stored> {
  float factor;

  template <uint32_t kWidth>
  __device__ void put(uint32_t part, uint64_t row, uint64_t column, uint32_t count, Pack<kWidth>& values) const {
    REPRISE_UNROLL
    for (uint32_t j = 0; j < kWidth; ++j) values.at[j] *= factor;
    TileOutput<Stored>::put(part, row, column, count, values);
  }
};
template <typename Stored>
ScaledOutput<Stored> output_of(const WeighedRows<Stored>& r) {
  return {{r.to, {r.shape.columns}, r.bias, r.accumulate, r.shape.columns % 4 == 0, 0}, r.scale};
}

// ---- operands in chunks ----

template <typename A, typename W, typename Stored>
Status launch_rows(const KernelContext& context, const WeighedRows<Stored>& r, const A& a, const W& w) {
  const ProductShape& s = r.shape;
  launch_chunk_product(context, TileProduct<A, W, ScaledOutput<Stored>>{a, w, output_of(r), s, s.depth, nullptr});
  return launch_status();
}

// Writes to[depth][column] = u[column][depth], in the type of the activations.
template <typename Stored>
__global__ void __launch_bounds__(kBlockThreads)
    transpose_weights(Stored* to, const Weight u, uint64_t columns, uint64_t rank) {
  for (uint64_t i = grid_thread(); i < columns * rank; i += grid_threads())
    to[i] = decode_weight(u, i % columns * rank + i / columns);
}

// Launches a product with an adapter on tensor cores. The f32 tile cannot multiply joined chunks.
template <typename Chunks, typename Stored>
Status launch_joined(const KernelContext& context, const WeighedRows<Stored>& r, const Chunks& w, const Chunks& u) {
  using A = JoinedChunks<RowChunks<Stored>>;
  using W = JoinedChunks<Chunks>;
  const ProductShape& s = r.shape;
  const uint64_t depth = joined_depth<Stored>(s.depth, r.rank);
  launch_tensor_cores(
      context, TileProduct<A, W, ScaledOutput<Stored>>{{{r.a, s.rows, s.depth}, {r.h, s.rows, r.rank}, s.depth, r.rank},
                                                       {w, u, s.depth, r.rank},
                                                       output_of(r),
                                                       {s.rows, s.columns, depth},
                                                       depth,
                                                       nullptr});
  return launch_status();
}

// Launches a product of operands in chunks. `space` is scratch for a copy of u.
template <typename Stored>
Status weigh_chunks(const KernelContext& context, const WeighedRows<Stored>& r, const Stored* weights, void* space) {
  const ProductShape& s = r.shape;
  const RowChunks<Stored> a{r.a, s.rows, s.depth}, by_row{weights, s.columns, s.depth};
  const ColumnChunks<Stored> by_depth{weights, s.columns, s.columns};
  if (r.rank == 0) return r.by_depth ? launch_rows(context, r, a, by_depth) : launch_rows(context, r, a, by_row);
  if (!r.by_depth)
    return launch_joined(context, r, by_row,
                         {chunk_weights<Stored>(context, r.u, s.columns * r.rank, space), s.columns, r.rank});
  Stored* u = static_cast<Stored*>(space);
  REPRISE_LAUNCH(transpose_weights<Stored>, blocks_for(s.columns * r.rank), kBlockThreads, context.queue, u, r.u,
                 s.columns, r.rank);
  return launch_joined(context, r, by_depth, {u, s.columns, s.columns});
}

inline Status weigh_rows_mma(const KernelContext& context, const WeighedRows<Bf16>& r) {
  const uint64_t elements = r.shape.columns * r.shape.depth;
  unsigned char* space = static_cast<unsigned char*>(r.scratch) + rounded_weights_bytes(r.w.type, elements);
  return weigh_chunks(context, r, weights_as_bf16(context, r.w, elements, r.scratch), space);
}

// True if all operands can be read in chunks of f32. This requires that w is stored as f32, and
// that a layer with an adapter is computed by one product (linear_joins_f32).
inline bool are_in_chunks(const KernelContext& context, const WeighedRows<float>& r) {
  const ProductShape& s = r.shape;
  if (r.rank != 0 && !linear_joins_f32(DType::kF32, product_math(context), s.depth, s.columns, r.rank, r.scale))
    return false;
  return r.w.type == DType::kF32 && are_chunks(r.by_depth ? s.columns : 4, DType::kF32) &&
         are_chunks(s.depth, DType::kF32);
}

// ---- operands read by elements ----

template <typename Stored, typename W>
Status weigh_rows_simt(const KernelContext& context, const WeighedRows<Stored>& r, const W& w) {
  const ProductShape& s = r.shape;
  const RowsSource<Stored> a{r.a, s.rows, s.depth};
  if (r.rank == 0) {
    launch_product(context,
                   TileProduct<RowsSource<Stored>, W, ScaledOutput<Stored>>{a, w, output_of(r), s, s.depth, nullptr});
    return launch_status();
  }
  using A = JoinedSource<RowsSource<Stored>, RowsSource<Stored>>;
  using B = JoinedSource<ScaledSource<W>, WeightRowsSource<Stored>>;
  const uint64_t depth = s.depth + r.rank;
  launch_product(context, TileProduct<A, B, TileOutput<Stored>>{{a, {r.h, s.rows, r.rank}, s.depth},
                                                                {{w, r.scale}, {r.u, s.columns, r.rank}, s.depth},
                                                                output_of(r),
                                                                {s.rows, s.columns, depth},
                                                                depth,
                                                                nullptr});
  return launch_status();
}

template <typename Stored>
Status weigh_rows(const KernelContext& context, const WeighedRows<Stored>& r) {
  const ProductShape& s = r.shape;
  if constexpr (kStoredAs<Stored> == DType::kBf16) {
    if (linear_forward_uses_mma(DType::kBf16, s.depth, s.columns, r.rank, r.scale)) return weigh_rows_mma(context, r);
  }
  const uint64_t elements = s.columns * s.depth;
  WeighedRows<Stored> plain = r;
  plain.w = plain_weights<Stored>(context, r.w, elements, r.scratch);
  void* space = static_cast<unsigned char*>(r.scratch) +
               plain_weights_bytes(r.w.type, kStoredAs<Stored>, product_math(context), elements);
  if constexpr (kStoredAs<Stored> == DType::kF32) {
    if (are_in_chunks(context, plain)) {
      if (!plain.by_depth) plain.u = plain_weights<float>(context, r.u, s.columns * r.rank, space);
      return weigh_chunks(context, plain, static_cast<const float*>(plain.w.data), space);
    }
  }
  plain.u = plain_weights<Stored>(context, r.u, s.columns * r.rank, space);
  if (r.by_depth) return weigh_rows_simt(context, plain, WeightColumnsSource<Stored>{plain.w, s.columns, s.columns});
  return weigh_rows_simt(context, plain, WeightRowsSource<Stored>{plain.w, s.columns, s.depth});
}

constexpr uint32_t kColumnWarps = 8;

// Writes partials[chunk][columns]. A block processes 32 columns of a chunk. A lane sums one column;
// each warp adds every kColumnWarps-th row.
template <typename Stored>
__global__ void __launch_bounds__(kColumnWarps * kWarpLanes)
    sum_columns_of_chunk(float* partials, const Stored* x, uint64_t rows, uint32_t columns, uint64_t chunk_rows) {
  REPRISE_SHARED(float, shared, kColumnWarps * kWarpLanes);
  const uint64_t column = uint64_t{blockIdx.x} * kWarpLanes + lane_index();
  const uint64_t begin = blockIdx.y * chunk_rows, end = minimum(rows, begin + chunk_rows);
  float sum = 0;
  for (uint64_t row = begin + warp_index(); column < columns && row < end; row += kColumnWarps)
    sum += x[row * columns + column];
  const float values[1] = {sum};
  const float total = sum_across_warps<kColumnWarps>(shared, values);
  if (warp_index() == 0 && column < columns) partials[blockIdx.y * uint64_t{columns} + column] = total;
}

}  // namespace

template <typename Stored>
Status cuda_linear_forward(const KernelContext& context, const LinearForwardArgsOf<Stored>& args) {
  return weigh_rows<Stored>(context, {.to = args.y,
                                      .a = args.x,
                                      .w = args.w,
                                      .bias = args.b,
                                      .shape = {args.M, args.K, args.C},
                                      .by_depth = args.input_major,
                                      .accumulate = false,
                                      .scratch = args.scratch,
                                      .scale = args.scale,
                                      .h = args.h,
                                      .u = args.u,
                                      .rank = args.R});
}

template <typename Stored>
Status cuda_linear_backward_data(const KernelContext& context, const LinearBackwardDataArgsOf<Stored>& args) {
  return weigh_rows<Stored>(context, {.to = args.dx,
                                      .a = args.dy,
                                      .w = args.w,
                                      .bias = nullptr,
                                      .shape = {args.M, args.C, args.K},
                                      .by_depth = !args.input_major,
                                      .accumulate = args.accumulate_dx,
                                      .scratch = args.scratch,
                                      .scale = args.scale});
}

template <typename Stored>
Status cuda_linear_backward_weight(const KernelContext& context, const LinearBackwardWeightArgsOf<Stored>& args) {
  const ProductShape shape = linear_weight_product(args.M, args.C, args.K, args.input_major);
  const CardSize card = card_size(context);
  const DepthSplit split =
      split_depth(shape, linear_weight_tile(shape, kStoredAs<Stored>, product_math(context), card), card);
  const SplitOutput to{args.dw, static_cast<float*>(args.scratch), shape, split, args.accumulate_dw};
  const Stored *a = args.input_major ? args.x : args.dy, *b = args.input_major ? args.dy : args.x;
  if (are_chunks(shape.rows, kStoredAs<Stored>) && are_chunks(shape.columns, kStoredAs<Stored>)) {
    return launch_split_chunks(context, ColumnChunks<Stored>{a, shape.rows, shape.rows},
                               ColumnChunks<Stored>{b, shape.columns, shape.columns}, to);
  }
  return launch_split_product(context, ColumnsSource<Stored>{a, shape.rows, shape.rows},
                              ColumnsSource<Stored>{b, shape.columns, shape.columns}, to);
}

template <typename Stored>
Status cuda_linear_backward_bias(const KernelContext& context, const LinearBackwardBiasArgsOf<Stored>& args) {
  const DepthSplit chunks = split_rows_of_columns(args.M);
  float* partials = static_cast<float*>(args.scratch);
  const dim3 grid = grid_of(parts(args.K, kWarpLanes), chunks.count);
  REPRISE_LAUNCH(sum_columns_of_chunk<Stored>, grid, kColumnWarps * kWarpLanes, context.queue, partials, args.dy,
                 args.M, args.K, chunks.size);
  REPRISE_LAUNCH(add_parts<float>, blocks_for(args.K), kBlockThreads, context.queue, args.db, partials,
                 uint64_t{args.K}, chunks.count, args.accumulate_db);
  return launch_status();
}

REPRISE_CUDA_INSTANTIATE(cuda_linear_forward, LinearForwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_linear_backward_data, LinearBackwardDataArgs)
REPRISE_CUDA_INSTANTIATE(cuda_linear_backward_weight, LinearBackwardWeightArgs)
REPRISE_CUDA_INSTANTIATE(cuda_linear_backward_bias, LinearBackwardBiasArgs)

}  // namespace reprise
