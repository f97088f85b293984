// Layer-norm over the last dimension (Ba, Kiros & Hinton 2016), forward and backward: a warp takes a row.
// Here as the twin of lib/cpu/layer_norm.cpp: a row is read from memory once where it fits into a warp's registers.
#include "cuda/cuda_kernels.h"
#include "cuda/launch.h"
#include "cuda/layer_norm_scratch.h"
#include "cuda/warp.h"

#include <cmath>

namespace reprise {
namespace {

constexpr uint32_t kWarps = 8;  // of every block here
constexpr uint32_t kBlockThreads = kWarps * kWarpLanes;
constexpr uint32_t kMaxGrid = 1u << 30;  // blocks; more rows than they have warps are taken in turns

// Neighbouring columns that a lane reads and writes at once.
template <uint32_t kWidth>
struct alignas(kWidth * sizeof(float)) Pack {
  float at[kWidth];
};
template <uint32_t kWidth>
__device__ Pack<kWidth> load_pack(const float* p) {
  return *reinterpret_cast<const Pack<kWidth>*>(p);
}
template <uint32_t kWidth>
__device__ void store_pack(float* p, const Pack<kWidth>& pack) {
  *reinterpret_cast<Pack<kWidth>*>(p) = pack;
}

// How a warp shares out a row: lane l has packs l, l + 32, l + 64, ... Calls f(h, c) for each: the lane's h-th pack,
// whose first column is c. With kHeld > 0 the row has at most kHeld packs a lane and h is known to the compiler; 0
// takes any row.
template <uint32_t kWidth, uint32_t kHeld, typename F>
__device__ void for_each_pack(uint32_t C, const F& f) {
  constexpr uint32_t kStride = kWarpLanes * kWidth;
  if constexpr (kHeld > 0) {
    REPRISE_UNROLL
    for (uint32_t h = 0; h < kHeld; ++h) {
      const uint32_t c = h * kStride + lane_index() * kWidth;
      if (c < C) f(h, c);
    }
  } else {
    uint32_t h = 0;
    for (uint64_t c = lane_index() * kWidth; c < C; c += kStride) f(h++, c);
  }
}

// A row that the warp reads more than once: kept in registers, or read again where no kHeld is large enough.
template <uint32_t kWidth, uint32_t kHeld>
struct WarpRow {
  const float* row;
  Pack<kWidth> held[kHeld == 0 ? 1 : kHeld];

  __device__ WarpRow(const float* start, uint32_t C) : row(start) {
    if constexpr (kHeld > 0) {
      for_each_pack<kWidth, kHeld>(C, [&](uint32_t h, uint64_t c) { held[h] = load_pack<kWidth>(row + c); });
    }
  }
  __device__ Pack<kWidth> pack(uint32_t h, uint64_t c) const {
    if constexpr (kHeld > 0) return held[h];
    return load_pack<kWidth>(row + c);
  }
};

// The sum over the warp, the same bits in every lane: partners add the same two numbers.
__device__ inline float warp_sum(float value) {
  for (uint32_t distance = kWarpLanes / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, static_cast<int>(distance));
  }
  return value;
}

// Every thread brings kCount values. Warp k < kCount leaves with value k summed over the warps in their order, lane by
// lane; the other warps leave with 0. `shared` holds kCount * kBlockThreads floats.
template <uint32_t kCount, typename Shared>
__device__ float sum_across_warps(Shared& shared, const float (&values)[kCount]) {
  static_assert(kCount <= kWarps);
  for (uint32_t k = 0; k < kCount; ++k) shared[k * kBlockThreads + threadIdx.x] = values[k];
  __syncthreads();
  float sum = 0;
  if (warp_index() < kCount) {
    for (uint32_t w = 0; w < kWarps; ++w) sum += shared[warp_index() * kBlockThreads + w * kWarpLanes + lane_index()];
  }
  __syncthreads();  // the next call overwrites what this one reads
  return sum;
}

template <uint32_t kWidth, uint32_t kHeld>
__global__ void __launch_bounds__(kBlockThreads) layer_norm_forward_warp_row(const LayerNormForwardArgsOf<float> args) {
  const uint32_t C = args.C;
  const float scale = 1.0f / static_cast<float>(C);
  for (uint64_t r = uint64_t{blockIdx.x} * kWarps + warp_index(); r < args.M; r += uint64_t{gridDim.x} * kWarps) {
    const WarpRow<kWidth, kHeld> x(args.x + r * C, C);
    float sum = 0;
    for_each_pack<kWidth, kHeld>(C, [&](uint32_t h, uint64_t c) {
      const Pack<kWidth> v = x.pack(h, c);
      for (uint32_t i = 0; i < kWidth; ++i) sum += v.at[i];
    });
    const float mean = warp_sum(sum) * scale;
    float squares = 0;
    for_each_pack<kWidth, kHeld>(C, [&](uint32_t h, uint64_t c) {
      const Pack<kWidth> v = x.pack(h, c);
      for (uint32_t i = 0; i < kWidth; ++i) squares = fmaf(v.at[i] - mean, v.at[i] - mean, squares);
    });
    const float rstd = 1.0f / sqrtf(fmaf(warp_sum(squares), scale, args.epsilon));
    if (lane_index() == 0) {
      args.mean[r] = mean;
      args.rstd[r] = rstd;
    }
    for_each_pack<kWidth, kHeld>(C, [&](uint32_t h, uint64_t c) {
      Pack<kWidth> v = x.pack(h, c);
      const Pack<kWidth> gamma = load_pack<kWidth>(args.gamma + c), beta = load_pack<kWidth>(args.beta + c);
      for (uint32_t i = 0; i < kWidth; ++i) v.at[i] = fmaf((v.at[i] - mean) * rstd, gamma.at[i], beta.at[i]);
      store_pack(args.y + r * C + c, v);
    });
  }
}

// dx = rstd (dxhat - mean(dxhat) - xhat mean(dxhat xhat)) with dxhat = dy gamma, xhat = (x - mean) rstd.
template <uint32_t kWidth, uint32_t kHeld>
__device__ void store_gradient_row(const LayerNormBackwardArgsOf<float>& args, uint64_t r, const WarpRow<kWidth, kHeld>& x,
                                   const WarpRow<kWidth, kHeld>& dy) {
  const uint32_t C = args.C;
  const float mean = args.mean[r], rstd = args.rstd[r], scale = 1.0f / static_cast<float>(C);
  float gradient = 0, projection = 0;
  for_each_pack<kWidth, kHeld>(C, [&](uint32_t h, uint64_t c) {
    const Pack<kWidth> xs = x.pack(h, c), dys = dy.pack(h, c), gamma = load_pack<kWidth>(args.gamma + c);
    for (uint32_t i = 0; i < kWidth; ++i) {
      const float g = dys.at[i] * gamma.at[i];
      gradient += g;
      projection = fmaf(g, (xs.at[i] - mean) * rstd, projection);
    }
  });
  gradient = warp_sum(gradient) * scale;
  projection = warp_sum(projection) * scale;
  for_each_pack<kWidth, kHeld>(C, [&](uint32_t h, uint64_t c) {
    const Pack<kWidth> xs = x.pack(h, c), dys = dy.pack(h, c), gamma = load_pack<kWidth>(args.gamma + c);
    Pack<kWidth> dx = {};
    if (args.accumulate_dx) dx = load_pack<kWidth>(args.dx + r * C + c);
    for (uint32_t i = 0; i < kWidth; ++i) {
      const float dxhat = fmaf(dys.at[i], gamma.at[i], -gradient), xhat = (xs.at[i] - mean) * rstd;
      dx.at[i] = fmaf(rstd, fmaf(-xhat, projection, dxhat), dx.at[i]);
    }
    store_pack(args.dx + r * C + c, dx);
  });
}

// What a lane has gathered of its columns' sums over rows.
template <uint32_t kWidth, uint32_t kHeld>
struct ColumnSums {
  Pack<kWidth> projection[kHeld] = {};  // of dy * xhat
  Pack<kWidth> gradient[kHeld] = {};    // of dy

  __device__ void add(const LayerNormBackwardArgsOf<float>& args, uint64_t r, const WarpRow<kWidth, kHeld>& x,
                      const WarpRow<kWidth, kHeld>& dy) {
    const float mean = args.mean[r], rstd = args.rstd[r];
    for_each_pack<kWidth, kHeld>(args.C, [&](uint32_t h, uint64_t) {
      for (uint32_t i = 0; i < kWidth; ++i) {
        const float xhat = (x.held[h].at[i] - mean) * rstd;
        projection[h].at[i] = fmaf(dy.held[h].at[i], xhat, projection[h].at[i]);
        gradient[h].at[i] += dy.held[h].at[i];
      }
    });
  }

  // Writes partials[2][C] of the block's chunk. Warp i gets column i of each lane's pack: first the projections, then
  // the gradients.
  template <typename Shared>
  __device__ void store(Shared& shared, float* partials, uint32_t C) const {
    REPRISE_UNROLL
    for (uint32_t h = 0; h < kHeld; ++h) {
      float values[2 * kWidth];
      for (uint32_t i = 0; i < kWidth; ++i) values[i] = projection[h].at[i];
      for (uint32_t i = 0; i < kWidth; ++i) values[kWidth + i] = gradient[h].at[i];
      const float sum = sum_across_warps(shared, values);
      const uint64_t which = warp_index() / kWidth;
      const uint32_t c = (h * kWarpLanes + lane_index()) * kWidth + warp_index() % kWidth;
      if (which < 2 && c < C) partials[which * C + c] = sum;
    }
  }
};

// dx and the chunks' sums in one reading of x and dy: a block takes a chunk of rows, its warps take the rows in turns.
// `partials` is null where neither dgamma nor dbeta is wanted.
template <uint32_t kWidth, uint32_t kHeld>
__global__ void __launch_bounds__(kBlockThreads)
    layer_norm_backward_warp_row_fused(const LayerNormBackwardArgsOf<float> args, float* partials, CudaRowChunks chunks) {
  REPRISE_SHARED(float, shared, 2 * kWidth * kBlockThreads);
  const uint64_t begin = blockIdx.x * chunks.rows, end = begin + chunks.rows < args.M ? begin + chunks.rows : args.M;
  ColumnSums<kWidth, kHeld> sums;
  for (uint64_t r = begin + warp_index(); r < end; r += kWarps) {
    const WarpRow<kWidth, kHeld> x(args.x + r * args.C, args.C), dy(args.dy + r * args.C, args.C);
    store_gradient_row(args, r, x, dy);
    if (partials != nullptr) sums.add(args, r, x, dy);
  }
  if (partials != nullptr) sums.store(shared, partials + blockIdx.x * uint64_t{2} * args.C, args.C);
}

// dx alone, for rows that no warp can hold.
template <uint32_t kWidth>
__global__ void __launch_bounds__(kBlockThreads) layer_norm_backward_warp_row(const LayerNormBackwardArgsOf<float> args) {
  for (uint64_t r = uint64_t{blockIdx.x} * kWarps + warp_index(); r < args.M; r += uint64_t{gridDim.x} * kWarps) {
    const WarpRow<kWidth, 0> x(args.x + r * args.C, args.C), dy(args.dy + r * args.C, args.C);
    store_gradient_row(args, r, x, dy);
  }
}

// The sums alone: block (x, y) takes 32 columns of chunk y, a lane one column, the warps its rows in turns.
__global__ void __launch_bounds__(kBlockThreads)
    layer_norm_backward_column_sums(const LayerNormBackwardArgsOf<float> args, float* partials, CudaRowChunks chunks) {
  REPRISE_SHARED(float, shared, 2 * kBlockThreads);
  const uint64_t C = args.C, c = uint64_t{blockIdx.x} * kWarpLanes + lane_index();
  const uint64_t begin = blockIdx.y * chunks.rows, end = begin + chunks.rows < args.M ? begin + chunks.rows : args.M;
  float values[2] = {};
  for (uint64_t r = begin + warp_index(); c < C && r < end; r += kWarps) {
    const float dy = args.dy[r * C + c];
    values[0] = fmaf(dy, (args.x[r * C + c] - args.mean[r]) * args.rstd[r], values[0]);
    values[1] += dy;
  }
  const float sum = sum_across_warps(shared, values);
  if (warp_index() < 2 && c < C) partials[(blockIdx.y * uint64_t{2} + warp_index()) * C + c] = sum;
}

// dgamma and dbeta from the partials: a block takes 32 columns, a lane one column, the warps the chunks in turns.
__global__ void __launch_bounds__(kBlockThreads)
    layer_norm_backward_add_partials(const LayerNormBackwardArgsOf<float> args, const float* partials, uint32_t chunk_count) {
  REPRISE_SHARED(float, shared, 2 * kBlockThreads);
  const uint64_t C = args.C, c = uint64_t{blockIdx.x} * kWarpLanes + lane_index();
  float values[2] = {};
  for (uint32_t k = warp_index(); c < C && k < chunk_count; k += kWarps) {
    values[0] += partials[k * 2 * C + c];
    values[1] += partials[(k * 2 + 1) * C + c];
  }
  const float sum = sum_across_warps(shared, values);
  if (warp_index() >= 2 || c >= C) return;
  float* out = warp_index() == 0 ? args.dgamma : args.dbeta;
  const bool accumulate = warp_index() == 0 ? args.accumulate_dgamma : args.accumulate_dbeta;
  if (out != nullptr) out[c] = accumulate ? out[c] + sum : sum;
}

// ---- which kernel a shape takes: a function of C alone ----

using ForwardKernel = void (*)(LayerNormForwardArgsOf<float>);
using FusedKernel = void (*)(LayerNormBackwardArgsOf<float>, float*, CudaRowChunks);

constexpr uint32_t kWideColumns = 4 * kWarpLanes;  // that a warp reads at once

ForwardKernel forward_kernel(uint32_t C) {
  if (C % 4 != 0) return layer_norm_forward_warp_row<1, 0>;
  if (C <= 1 * kWideColumns) return layer_norm_forward_warp_row<4, 1>;
  if (C <= 2 * kWideColumns) return layer_norm_forward_warp_row<4, 2>;
  if (C <= 4 * kWideColumns) return layer_norm_forward_warp_row<4, 4>;
  if (C <= 6 * kWideColumns) return layer_norm_forward_warp_row<4, 6>;
  if (C <= 8 * kWideColumns) return layer_norm_forward_warp_row<4, 8>;
  return layer_norm_forward_warp_row<4, 0>;
}

// Null where no warp can hold two rows.
FusedKernel fused_kernel(uint32_t C) {
  if (C % 4 != 0) return nullptr;
  if (C <= 1 * kWideColumns) return layer_norm_backward_warp_row_fused<4, 1>;
  if (C <= 2 * kWideColumns) return layer_norm_backward_warp_row_fused<4, 2>;
  if (C <= 4 * kWideColumns) return layer_norm_backward_warp_row_fused<4, 4>;
  if (C <= 6 * kWideColumns) return layer_norm_backward_warp_row_fused<4, 6>;
  if (C <= 8 * kWideColumns) return layer_norm_backward_warp_row_fused<4, 8>;
  return nullptr;
}

constexpr uint32_t row_blocks(uint64_t M) {
  const uint64_t blocks = (M + kWarps - 1) / kWarps;
  return blocks == 0 ? 1 : blocks < kMaxGrid ? static_cast<uint32_t>(blocks) : kMaxGrid;
}
constexpr uint32_t column_blocks(uint32_t C) { return C / kWarpLanes + (C % kWarpLanes != 0); }

// For rows too long to hold: x and dy are read once for dx and once for the sums.
Status launch_separate(const LayerNormBackwardArgsOf<float>& args, float* partials, CudaRowChunks chunks, void* queue) {
  const auto kernel = args.C % 4 == 0 ? layer_norm_backward_warp_row<4> : layer_norm_backward_warp_row<1>;
  REPRISE_LAUNCH(kernel, row_blocks(args.M), kBlockThreads, queue, args);
  if (partials == nullptr) return launch_status();
  const dim3 grid(column_blocks(args.C), chunks.count());
  REPRISE_LAUNCH(layer_norm_backward_column_sums, grid, kBlockThreads, queue, args, partials, chunks);
  return launch_status();
}

}  // namespace

Status cuda_layer_norm_forward(const KernelContext& context, const LayerNormForwardArgsOf<float>& args) {
  REPRISE_LAUNCH(forward_kernel(args.C), row_blocks(args.M), kBlockThreads, context.queue, args);
  return launch_status();
}

Status cuda_layer_norm_backward(const KernelContext& context, const LayerNormBackwardArgsOf<float>& args) {
  const bool frozen = args.dgamma == nullptr && args.dbeta == nullptr;
  float* partials = frozen ? nullptr : static_cast<float*>(args.scratch);
  const CudaRowChunks chunks = cuda_layer_norm_chunks(args.M);
  if (const FusedKernel fused = fused_kernel(args.C); fused != nullptr) {
    REPRISE_LAUNCH(fused, chunks.count(), kBlockThreads, context.queue, args, partials, chunks);
  } else {
    REPRISE_RETURN_IF_ERROR(launch_separate(args, partials, chunks, context.queue));
  }
  if (!frozen) {
    REPRISE_LAUNCH(layer_norm_backward_add_partials, column_blocks(args.C), kBlockThreads, context.queue, args,
                   partials, chunks.count());
  }
  return launch_status();
}

}  // namespace reprise
