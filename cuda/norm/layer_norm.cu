// Layer-norm (Ba, Kiros & Hinton 2016) and RMS-norm (Zhang & Sennrich 2019) over rows as long as
// gamma, forward and backward. The counterpart of lib/cpu/norm/layer_norm.cpp. A warp processes a
// row. It reads the row from memory once if the row consists of whole packs and fits the registers
// of a warp. RMS-norm is layer-norm with a mean of zero and without beta; kCentred is false for
// RMS-norm.
#include "cuda/cuda_backend.h"
#include "cuda/cuda_kernels.h"
#include "cuda/gemm/pack.h"
#include "cuda/grid.h"
#include "cuda/norm/layer_norm_rules.h"
#include "cuda/reduce.h"

#include <cmath>

namespace reprise {
namespace {

constexpr uint32_t kWarps = kBlockThreads / kWarpLanes;

template <typename Stored>
struct NormRows {
  Stored* y;
  float *mean, *rstd;  // mean is null for RMS-norm
  const Stored* x;
  const float *gamma, *beta;  // beta is null for RMS-norm
  uint64_t M;
  uint32_t C;
  float epsilon, offset;  // offset: number that RMS-norm adds to gamma; 0 for layer-norm
};

template <typename Stored>
struct NormGradient {
  Stored* dx;
  float *dgamma, *dbeta;  // null if not needed; dbeta is null for RMS-norm
  const Stored* x;
  const float *mean, *rstd;  // mean is null for RMS-norm
  const float* gamma;
  const Stored* dy;
  uint64_t M;
  uint32_t C;
  float offset;  // added to RMS-norm's gamma; else 0
  bool accumulate_dx, accumulate_dgamma, accumulate_dbeta;
};

// Returns the factor of a column: gamma plus the offset for RMS-norm, and gamma for layer-norm.
template <bool kCentred>
__device__ float whole_gamma(float gamma, float offset) {
  return kCentred ? gamma : gamma + offset;
}

// Calls f(h, c) for each of the lane's packs of a row: h counts these packs, and c is the first
// column of the pack. Lane l has packs l, l + 32, l + 64, ... If kKept > 0, a lane must have at
// most kKept packs, and h is a constant for the compiler. kKept = 0 allows rows of any length.
template <uint32_t kWidth, uint32_t kKept, typename F>
__device__ void for_each_pack(uint32_t C, const F& f) {
  constexpr uint32_t kStride = kWarpLanes * kWidth;
  if constexpr (kKept > 0) {
    REPRISE_UNROLL
    for (uint32_t h = 0; h < kKept; ++h) {
      const uint32_t c = h * kStride + lane_index() * kWidth;
      if (c < C) f(h, c);
    }
  } else {
    uint32_t h = 0;
    for (uint64_t c = lane_index() * kWidth; c < C; c += kStride) f(h++, c);
  }
}

// A row that the warp reads more than once. It is kept in registers if kKept > 0. If kKept is 0,
// the row does not fit the registers or is not whole packs, and is read from memory each time.
template <uint32_t kWidth, uint32_t kKept, typename Stored>
struct WarpRow {
  const Stored* row;
  Pack<kWidth> kept[kKept == 0 ? 1 : kKept];

  __device__ WarpRow(const Stored* start, uint32_t C) : row(start) {
    if constexpr (kKept > 0) {
      for_each_pack<kWidth, kKept>(C, [&](uint32_t h, uint64_t c) { kept[h] = load_pack<kWidth>(row + c); });
    }
  }
  __device__ Pack<kWidth> pack(uint32_t h, uint64_t c) const {
    if constexpr (kKept > 0) return kept[h];
    return load_pack<kWidth>(row + c);
  }
  // Returns the sum of (x - shift)^kPower over the row.
  template <uint32_t kPower>
  __device__ float sum(uint32_t C, float shift) const {
    float sum = 0;
    for_each_pack<kWidth, kKept>(C, [&](uint32_t h, uint64_t c) {
      const Pack<kWidth> v = pack(h, c);
      for (uint32_t i = 0; i < kWidth; ++i) {
        const float d = v.at[i] - shift;
        sum = kPower == 1 ? sum + d : fmaf(d, d, sum);
      }
    });
    return warp_sum(sum);
  }
};

template <uint32_t kWidth, uint32_t kKept, bool kCentred, typename Stored>
__global__ void __launch_bounds__(kBlockThreads) norm_forward_warp_row(const NormRows<Stored> args) {
  const uint32_t C = args.C;
  const float scale = 1.0f / static_cast<float>(C);
  for (uint64_t r = uint64_t{blockIdx.x} * kWarps + warp_index(); r < args.M; r += uint64_t{gridDim.x} * kWarps) {
    const WarpRow<kWidth, kKept, Stored> x(args.x + r * C, C);
    const float mean = kCentred ? x.template sum<1>(C, 0.0f) * scale : 0.0f;
    const float rstd = 1.0f / sqrtf(fmaf(x.template sum<2>(C, mean), scale, args.epsilon));
    if (lane_index() == 0) {
      if (kCentred) args.mean[r] = mean;
      args.rstd[r] = rstd;
    }
    for_each_pack<kWidth, kKept>(C, [&](uint32_t h, uint64_t c) {
      Pack<kWidth> v = x.pack(h, c), beta = {};
      const Pack<kWidth> gamma = load_pack<kWidth>(args.gamma + c);
      if constexpr (kCentred) beta = load_pack<kWidth>(args.beta + c);
      for (uint32_t i = 0; i < kWidth; ++i)
        v.at[i] = fmaf((v.at[i] - mean) * rstd, whole_gamma<kCentred>(gamma.at[i], args.offset), beta.at[i]);
      store_pack(args.y + r * C + c, v);
    });
  }
}

// ---- backward ----

// Computes xhat = (x - mean) * rstd for one row.
template <bool kCentred, typename Stored>
struct RowNorm {
  float mean, rstd;

  __device__ RowNorm(const NormGradient<Stored>& args, uint64_t r)
      : mean(kCentred ? args.mean[r] : 0.0f), rstd(args.rstd[r]) {}
  __device__ float xhat(float x) const { return (x - mean) * rstd; }
};

// Stores dx = rstd * (dxhat - mean(dxhat) - xhat * mean(dxhat * xhat)), with dxhat = dy * gamma.
// RMS-norm does not have the term mean(dxhat).
template <bool kCentred, uint32_t kWidth, uint32_t kKept, typename Stored>
__device__ void store_gradient_row(const NormGradient<Stored>& args, uint64_t r,
                                   const WarpRow<kWidth, kKept, Stored>& x, const WarpRow<kWidth, kKept, Stored>& dy) {
  const uint32_t C = args.C;
  const RowNorm<kCentred, Stored> norm(args, r);
  const float scale = 1.0f / static_cast<float>(C);
  float gradient = 0, projection = 0, of_offset = 0;  // of_offset: part of `projection` that comes from the offset
  for_each_pack<kWidth, kKept>(C, [&](uint32_t h, uint64_t c) {
    const Pack<kWidth> xs = x.pack(h, c), dys = dy.pack(h, c), gamma = load_pack<kWidth>(args.gamma + c);
    for (uint32_t i = 0; i < kWidth; ++i) {
      const float g = dys.at[i] * gamma.at[i];
      gradient += g;
      projection = fmaf(g, norm.xhat(xs.at[i]), projection);
      if constexpr (!kCentred) of_offset = fmaf(dys.at[i], norm.xhat(xs.at[i]), of_offset);
    }
  });
  gradient = kCentred ? warp_sum(gradient) * scale : 0.0f;
  projection = warp_sum(fmaf(of_offset, args.offset, projection)) * scale;
  for_each_pack<kWidth, kKept>(C, [&](uint32_t h, uint64_t c) {
    const Pack<kWidth> xs = x.pack(h, c), dys = dy.pack(h, c), gamma = load_pack<kWidth>(args.gamma + c);
    Pack<kWidth> dx = {};
    if (args.accumulate_dx) dx = load_pack<kWidth>(args.dx + r * C + c);
    for (uint32_t i = 0; i < kWidth; ++i) {
      const float inner = fmaf(-norm.xhat(xs.at[i]), projection,
                               fmaf(dys.at[i], whole_gamma<kCentred>(gamma.at[i], args.offset), -gradient));
      dx.at[i] = fmaf(norm.rstd, inner, dx.at[i]);
    }
    store_pack(args.dx + r * C + c, dx);
  });
}

// Number of sums over rows that each column has: the sum of dy * xhat, and for layer-norm also the
// sum of dy.
template <bool kCentred>
inline constexpr uint32_t kColumnSums = kCentred ? 2 : 1;

// Sums over the rows that this lane has processed, for each of the lane's columns.
template <bool kCentred, uint32_t kWidth, uint32_t kKept, typename Stored>
struct ColumnSums {
  Pack<kWidth> sums[kColumnSums<kCentred>][kKept] = {};

  __device__ void add(const NormGradient<Stored>& args, uint64_t r, const WarpRow<kWidth, kKept, Stored>& x,
                      const WarpRow<kWidth, kKept, Stored>& dy) {
    const RowNorm<kCentred, Stored> norm(args, r);
    for_each_pack<kWidth, kKept>(args.C, [&](uint32_t h, uint64_t) {
      for (uint32_t i = 0; i < kWidth; ++i) {
        sums[0][h].at[i] = fmaf(dy.kept[h].at[i], norm.xhat(x.kept[h].at[i]), sums[0][h].at[i]);
        if constexpr (kCentred) sums[1][h].at[i] += dy.kept[h].at[i];
      }
    });
  }

  // Adds the sums of all warps and writes partials[kColumnSums][C] of the block's chunk. Warp i
  // writes column i of each lane's pack.
  template <typename Shared>
  __device__ void store(Shared& shared, float* partials, uint32_t C) const {
    REPRISE_UNROLL
    for (uint32_t which = 0; which < kColumnSums<kCentred>; ++which) {
      REPRISE_UNROLL
      for (uint32_t h = 0; h < kKept; ++h) {
        const float sum = sum_across_warps<kWarps>(shared, sums[which][h].at);
        const uint32_t c = (h * kWarpLanes + lane_index()) * kWidth + warp_index();
        if (warp_index() < kWidth && c < C) partials[uint64_t{which} * C + c] = sum;
      }
    }
  }
};

// Computes dx and the chunks' sums, and reads x and dy once. A block processes a chunk of rows;
// each warp processes every kWarps-th row. `partials` is null if neither dgamma nor dbeta is
// needed.
template <uint32_t kWidth, uint32_t kKept, bool kCentred, typename Stored>
__global__ void __launch_bounds__(kBlockThreads)
    norm_backward_warp_row_fused(const NormGradient<Stored> args, float* partials, CudaRowChunks chunks) {
  REPRISE_SHARED(float, shared, kWidth * kBlockThreads);
  ColumnSums<kCentred, kWidth, kKept, Stored> sums;
  for (uint64_t r = chunks.begin(blockIdx.x) + warp_index(); r < chunks.end(blockIdx.x); r += kWarps) {
    const WarpRow<kWidth, kKept, Stored> x(args.x + r * args.C, args.C), dy(args.dy + r * args.C, args.C);
    store_gradient_row<kCentred>(args, r, x, dy);
    if (partials != nullptr) sums.add(args, r, x, dy);
  }
  if (partials != nullptr) sums.store(shared, partials + blockIdx.x * uint64_t{kColumnSums<kCentred>} * args.C, args.C);
}

// Computes only dx, for rows that do not fit a warp's registers or are not whole packs.
template <uint32_t kWidth, bool kCentred, typename Stored>
__global__ void __launch_bounds__(kBlockThreads) norm_backward_warp_row(const NormGradient<Stored> args) {
  for (uint64_t r = uint64_t{blockIdx.x} * kWarps + warp_index(); r < args.M; r += uint64_t{gridDim.x} * kWarps) {
    const WarpRow<kWidth, 0, Stored> x(args.x + r * args.C, args.C), dy(args.dy + r * args.C, args.C);
    store_gradient_row<kCentred>(args, r, x, dy);
  }
}

// Computes only the sums of the chunks. Block (x, y) processes 32 columns of chunk y. A lane sums
// one column; each warp adds every kWarps-th row.
template <bool kCentred, typename Stored>
__global__ void __launch_bounds__(kBlockThreads)
    norm_backward_column_sums(const NormGradient<Stored> args, float* partials, CudaRowChunks chunks) {
  constexpr uint32_t kSums = kColumnSums<kCentred>;
  REPRISE_SHARED(float, shared, kSums * kBlockThreads);
  const uint64_t C = args.C, c = uint64_t{blockIdx.x} * kWarpLanes + lane_index(), end = chunks.end(blockIdx.y);
  float values[kSums] = {};
  for (uint64_t r = chunks.begin(blockIdx.y) + warp_index(); c < C && r < end; r += kWarps) {
    const float dy = args.dy[r * C + c];
    values[0] = fmaf(dy, RowNorm<kCentred, Stored>(args, r).xhat(args.x[r * C + c]), values[0]);
    if constexpr (kCentred) values[1] += dy;
  }
  const float sum = sum_across_warps<kWarps>(shared, values);
  if (warp_index() < kSums && c < C) partials[(blockIdx.y * uint64_t{kSums} + warp_index()) * C + c] = sum;
}

// Computes dgamma and dbeta from the partials. A block processes 32 columns. A lane sums one
// column; each warp adds every kWarps-th chunk.
template <bool kCentred, typename Stored>
__global__ void __launch_bounds__(kBlockThreads)
    norm_backward_add_partials(const NormGradient<Stored> args, const float* partials, uint32_t chunk_count) {
  constexpr uint32_t kSums = kColumnSums<kCentred>;
  REPRISE_SHARED(float, shared, kSums * kBlockThreads);
  const uint64_t C = args.C, c = uint64_t{blockIdx.x} * kWarpLanes + lane_index();
  float values[kSums] = {};
  for (uint32_t k = warp_index(); c < C && k < chunk_count; k += kWarps) {
    for (uint32_t which = 0; which < kSums; ++which) values[which] += partials[(k * uint64_t{kSums} + which) * C + c];
  }
  const float sum = sum_across_warps<kWarps>(shared, values);
  if (warp_index() >= kSums || c >= C) return;
  float* out = warp_index() == 0 ? args.dgamma : args.dbeta;
  const bool accumulate = warp_index() == 0 ? args.accumulate_dgamma : args.accumulate_dbeta;
  if (out != nullptr) out[c] = accumulate ? out[c] + sum : sum;
}

// ---- selection of the kernel, by C alone ----

template <typename Stored>
using ForwardKernel = void (*)(NormRows<Stored>);
template <typename Stored>
using FusedKernel = void (*)(NormGradient<Stored>, float*, CudaRowChunks);

// Returns the number of packs of a row that a lane keeps in registers; 0 if they do not fit, or if
// rows are not whole packs.
template <typename Stored>
constexpr uint32_t kept_packs(uint32_t C) {
  constexpr uint32_t kWidth = kPackWidth<Stored>, kMax = 32 / kWidth;  // 32 columns a lane
  const uint64_t packs = parts(C, kWidth * kWarpLanes);
  return C % kWidth != 0 || packs > kMax ? 0 : static_cast<uint32_t>(packs);
}

template <bool kCentred, typename Stored>
ForwardKernel<Stored> forward_kernel(uint32_t C) {
  constexpr uint32_t kWidth = kPackWidth<Stored>;
  const uint32_t kept = kept_packs<Stored>(C);
  if (kept == 1) return norm_forward_warp_row<kWidth, 1, kCentred, Stored>;
  if (kept == 2) return norm_forward_warp_row<kWidth, 2, kCentred, Stored>;
  if (kept == 3 && kWidth == 8) return norm_forward_warp_row<kWidth, 24 / kWidth, kCentred, Stored>;
  if (kept == 3 || kept == 4) return norm_forward_warp_row<kWidth, 4, kCentred, Stored>;
  if (kept == 5 || kept == 6) return norm_forward_warp_row<kWidth, 24 / kWidth, kCentred, Stored>;
  if (kept == 7 || kept == 8) return norm_forward_warp_row<kWidth, 32 / kWidth, kCentred, Stored>;
  return C % kWidth == 0 ? norm_forward_warp_row<kWidth, 0, kCentred, Stored>
                         : norm_forward_warp_row<1, 0, kCentred, Stored>;
}

// Returns the kernel that keeps a row of x and a row of dy, of C columns each, in registers.
// Returns null if these rows do not fit, or are not whole packs (kept_packs).
template <bool kCentred, typename Stored>
FusedKernel<Stored> fused_kernel(uint32_t C) {
  constexpr uint32_t kWidth = kPackWidth<Stored>;
  const uint32_t kept = kept_packs<Stored>(C);
  if (kept == 1) return norm_backward_warp_row_fused<kWidth, 1, kCentred, Stored>;
  if (kept == 2) return norm_backward_warp_row_fused<kWidth, 2, kCentred, Stored>;
  if (kept == 3 && kWidth == 8) return norm_backward_warp_row_fused<kWidth, 24 / kWidth, kCentred, Stored>;
  if (kept == 3 || kept == 4) return norm_backward_warp_row_fused<kWidth, 4, kCentred, Stored>;
  if (kept == 5 || kept == 6) return norm_backward_warp_row_fused<kWidth, 24 / kWidth, kCentred, Stored>;
  if (kept == 7 || kept == 8) return norm_backward_warp_row_fused<kWidth, 32 / kWidth, kCentred, Stored>;
  return nullptr;
}

constexpr uint64_t kMaxRowBlocks = 1u << 30;  // maximum number of blocks; warps loop over rows if there are more rows
constexpr uint32_t row_blocks(uint64_t M) {
  return static_cast<uint32_t>(maximum(1, minimum(parts(M, kWarps), kMaxRowBlocks)));
}
constexpr uint32_t column_blocks(uint32_t C) { return static_cast<uint32_t>(parts(C, kWarpLanes)); }

template <bool kCentred, typename Stored>
Status launch_forward(const KernelContext& context, const NormRows<Stored>& args) {
  REPRISE_LAUNCH((forward_kernel<kCentred, Stored>(args.C)), row_blocks(args.M), kBlockThreads, context.queue, args);
  return launch_status();
}

// Launches the backward for rows for which fused_kernel() is null. One kernel reads x and dy for
// dx, and another one reads them for the sums.
template <bool kCentred, typename Stored>
void launch_separate(const NormGradient<Stored>& args, float* partials, CudaRowChunks chunks, void* queue) {
  constexpr uint32_t kWidth = kPackWidth<Stored>;
  const auto kernel = args.C % kWidth == 0 ? norm_backward_warp_row<kWidth, kCentred, Stored>
                                           : norm_backward_warp_row<1, kCentred, Stored>;
  REPRISE_LAUNCH(kernel, row_blocks(args.M), kBlockThreads, queue, args);
  if (partials == nullptr) return;
  const dim3 grid = grid_of(column_blocks(args.C), chunks.count());
  REPRISE_LAUNCH((norm_backward_column_sums<kCentred, Stored>), grid, kBlockThreads, queue, args, partials, chunks);
}

template <bool kCentred, typename Stored>
Status launch_backward(const KernelContext& context, const NormGradient<Stored>& args, void* scratch) {
  const bool frozen = args.dgamma == nullptr && args.dbeta == nullptr;
  float* partials = frozen ? nullptr : static_cast<float*>(scratch);
  const CudaRowChunks chunks = cuda_layer_norm_chunks(args.M, card_size(context));
  if (const FusedKernel<Stored> fused = fused_kernel<kCentred, Stored>(args.C); fused != nullptr) {
    REPRISE_LAUNCH(fused, chunks.count(), kBlockThreads, context.queue, args, partials, chunks);
  } else {
    launch_separate<kCentred>(args, partials, chunks, context.queue);
  }
  if (!frozen) {
    REPRISE_LAUNCH((norm_backward_add_partials<kCentred, Stored>), column_blocks(args.C), kBlockThreads, context.queue,
                   args, partials, chunks.count());
  }
  return launch_status();
}

}  // namespace

template <typename Stored>
Status cuda_layer_norm_forward(const KernelContext& context, const LayerNormForwardArgsOf<Stored>& args) {
  return launch_forward<true, Stored>(context, {args.y, args.mean, args.rstd, args.x, args.gamma, args.beta, args.M,
                                                args.C, args.epsilon, 0.0f});
}

template <typename Stored>
Status cuda_rms_norm_forward(const KernelContext& context, const RmsNormForwardArgsOf<Stored>& args) {
  return launch_forward<false, Stored>(context, {args.y, nullptr, args.rstd, args.x, args.gamma, nullptr, args.M,
                                                 args.C, args.epsilon, args.offset});
}

template <typename Stored>
Status cuda_layer_norm_backward(const KernelContext& context, const LayerNormBackwardArgsOf<Stored>& args) {
  const NormGradient<Stored> gradient{.dx = args.dx,
                                      .dgamma = args.dgamma,
                                      .dbeta = args.dbeta,
                                      .x = args.x,
                                      .mean = args.mean,
                                      .rstd = args.rstd,
                                      .gamma = args.gamma,
                                      .dy = args.dy,
                                      .M = args.M,
                                      .C = args.C,
                                      .offset = 0.0f,
                                      .accumulate_dx = args.accumulate_dx,
                                      .accumulate_dgamma = args.accumulate_dgamma,
                                      .accumulate_dbeta = args.accumulate_dbeta};
  return launch_backward<true>(context, gradient, args.scratch);
}

template <typename Stored>
Status cuda_rms_norm_backward(const KernelContext& context, const RmsNormBackwardArgsOf<Stored>& args) {
  const NormGradient<Stored> gradient{.dx = args.dx,
                                      .dgamma = args.dgamma,
                                      .dbeta = nullptr,
                                      .x = args.x,
                                      .mean = nullptr,
                                      .rstd = args.rstd,
                                      .gamma = args.gamma,
                                      .dy = args.dy,
                                      .M = args.M,
                                      .C = args.C,
                                      .offset = args.offset,
                                      .accumulate_dx = args.accumulate_dx,
                                      .accumulate_dgamma = args.accumulate_dgamma,
                                      .accumulate_dbeta = false};
  return launch_backward<false>(context, gradient, args.scratch);
}

REPRISE_CUDA_INSTANTIATE(cuda_layer_norm_forward, LayerNormForwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_layer_norm_backward, LayerNormBackwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_rms_norm_forward, RmsNormForwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_rms_norm_backward, RmsNormBackwardArgs)

}  // namespace reprise
