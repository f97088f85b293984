// DoRA (lib/ops/dora.h): the lengths of the adapted weight's rows, the scaling of activations by
// these lengths, and the gradients of the scaling. The counterpart of lib/cpu/pointwise/dora.cpp.
// The adapted weight is not stored: each element stays in a register until its square is added.
#include "cuda/cuda_backend.h"
#include "cuda/cuda_kernels.h"
#include "cuda/gemm/pack.h"
#include "cuda/grid.h"
#include "cuda/pointwise/dora_rules.h"
#include "cuda/reduce.h"
#include "cuda/weight_format.h"

#include <cmath>

namespace reprise {
namespace {

constexpr uint32_t kWarps = kBlockThreads / kWarpLanes;

// ---- norms ----

// Readers of a weight's elements: PlainReader for f32 and bf16, AnyReader for all formats. A thread
// computes kTogether elements from the same numbers of the adapter. AnyReader computes fewer
// elements at a time, because it must decode each element.
template <typename Number>
struct PlainReader {
  static constexpr uint32_t kTogether = 8;
  const Number* w;
  __device__ float at(uint64_t i) const { return w[i]; }
};
struct AnyReader {
  static constexpr uint32_t kTogether = 2;
  Weight w;
  __device__ float at(uint64_t i) const { return decode_weight(w, i); }
};

// The adapter as the kernels read it (dora_rules.h): `up` [R, columns] is scale * B, transposed;
// `down` [R,C] is A.
struct LaidAdapter {
  const float *up, *down;
  uint64_t columns, C, K, R;
};

__global__ void __launch_bounds__(kBlockThreads)
    lay_up(float* up, const Weight b, float scale, uint64_t columns, uint64_t K, uint64_t R) {
  for (uint64_t i = grid_thread(); i < R * columns; i += grid_threads()) {
    const uint64_t r = i / columns, k = i % columns;
    up[i] = k < K ? scale * decode_weight(b, k * R + r) : 0.0f;
  }
}

// Computes the norms of the rows of the adapted W [K,C]. A block processes kTogether rows; a thread
// processes every kBlockThreads-th column of these rows.
template <typename Reader>
__global__ void __launch_bounds__(kBlockThreads) norms_of_rows(float* norms, const Reader w, const LaidAdapter a) {
  constexpr uint32_t kRows = Reader::kTogether;
  REPRISE_SHARED(double, shared, kWarps);
  const uint64_t first = uint64_t{blockIdx.x} * kRows;
  double sums[kRows] = {};
  for (uint64_t c = threadIdx.x; c < a.C; c += kBlockThreads) {
    float v[kRows];
    REPRISE_UNROLL
    for (uint32_t i = 0; i < kRows; ++i) v[i] = w.at(minimum(first + i, a.K - 1) * a.C + c);
    for (uint64_t r = 0; r < a.R; ++r) {
      const float down = a.down[r * a.C + c];
      const Pack<kRows> up = load_pack<kRows>(a.up + r * a.columns + first);
      REPRISE_UNROLL
      for (uint32_t i = 0; i < kRows; ++i) v[i] = fmaf(up.at[i], down, v[i]);
    }
    REPRISE_UNROLL
    for (uint32_t i = 0; i < kRows; ++i) sums[i] = fma(static_cast<double>(v[i]), static_cast<double>(v[i]), sums[i]);
  }
  REPRISE_UNROLL
  for (uint32_t i = 0; i < kRows; ++i) {
    const double sum = block_sum<kWarps>(shared, sums[i]);
    if (threadIdx.x == 0 && first + i < a.K) norms[first + i] = static_cast<float>(sqrt(sum));
  }
}

// Computes the norms of the columns of the adapted W [C,K]. A block processes 32 columns, one in
// each lane. Each warp processes kTogether neighbouring rows at a time.
template <typename Reader>
__global__ void __launch_bounds__(kBlockThreads) norms_of_columns(float* norms, const Reader w, const LaidAdapter a) {
  constexpr uint32_t kRows = Reader::kTogether;
  REPRISE_SHARED(double, shared, kBlockThreads);
  const uint64_t k = uint64_t{blockIdx.x} * kWarpLanes + lane_index(), inside = minimum(k, a.K - 1);
  double sum = 0;
  for (uint64_t first = warp_index() * kRows; first < a.C; first += kWarps * kRows) {
    float v[kRows];
    REPRISE_UNROLL
    for (uint32_t i = 0; i < kRows; ++i) v[i] = w.at(minimum(first + i, a.C - 1) * a.K + inside);
    for (uint64_t r = 0; r < a.R; ++r) {
      const float up = a.up[r * a.columns + k];
      REPRISE_UNROLL
      for (uint32_t i = 0; i < kRows; ++i) v[i] = fmaf(up, a.down[r * a.C + minimum(first + i, a.C - 1)], v[i]);
    }
    REPRISE_UNROLL
    for (uint32_t i = 0; i < kRows; ++i) {
      const float there = first + i < a.C ? v[i] : 0.0f;
      sum = fma(static_cast<double>(there), static_cast<double>(there), sum);
    }
  }
  shared[threadIdx.x] = sum;
  __syncthreads();
  if (warp_index() != 0 || k >= a.K) return;
  double total = 0;
  for (uint32_t other = 0; other < kWarps; ++other) total += shared[other * kWarpLanes + lane_index()];
  norms[k] = static_cast<float>(sqrt(total));
}

template <typename Reader>
Status launch_norms(const KernelContext& context, const DoraNormsArgs& args, const Reader& w,
                    const LaidAdapter& adapter) {
  if (args.input_major) {
    const auto blocks = static_cast<uint32_t>(parts(args.K, kWarpLanes));
    REPRISE_LAUNCH(norms_of_columns<Reader>, blocks, kBlockThreads, context.queue, args.norms, w, adapter);
  } else {
    const auto blocks = static_cast<uint32_t>(parts(args.K, Reader::kTogether));
    REPRISE_LAUNCH(norms_of_rows<Reader>, blocks, kBlockThreads, context.queue, args.norms, w, adapter);
  }
  return launch_status();
}

// ---- the scale by row, and its gradients ----

template <typename Stored>
struct ScaledRows {
  Stored* to;
  const Stored* from;
  const float *magnitudes, *norms, *bias;  // bias may be null
  const Stored* z;                         // [M,K]: the sums in `partials` are those of from * z
  float* partials;                         // [chunk][K]; null if the sums are not needed
  uint64_t M;
  uint32_t K;
};

__device__ inline float factor_of(float magnitude, float norm) { return norm > 0 ? magnitude / norm : 0.0f; }

// Scales rows. Block (x, y) processes 32 packs of channels in the rows of chunk y. A lane has one
// pack; each warp processes every kWarps-th row. With kSums, also computes the sums of from * z
// over the rows of the chunk.
template <uint32_t kWidth, bool kSums, typename Stored>
__global__ void __launch_bounds__(kBlockThreads) scale_chunk(const ScaledRows<Stored> args, CudaRowChunks chunks) {
  static_assert(kWidth <= kWarps);
  const uint64_t K = args.K, k = (uint64_t{blockIdx.x} * kWarpLanes + lane_index()) * kWidth,
                 end = chunks.end(blockIdx.y);
  Pack<kWidth> factor = {}, bias = {};
  float sums[kWidth] = {};
  if (k < K) {
    const Pack<kWidth> magnitude = load_pack<kWidth>(args.magnitudes + k), norm = load_pack<kWidth>(args.norms + k);
    REPRISE_UNROLL
    for (uint32_t i = 0; i < kWidth; ++i) factor.at[i] = factor_of(magnitude.at[i], norm.at[i]);
    if (args.bias != nullptr) bias = load_pack<kWidth>(args.bias + k);
    for (uint64_t r = chunks.begin(blockIdx.y) + warp_index(); r < end; r += kWarps) {
      const uint64_t at = (r * K + k) / kWidth * kWidth;  // tells the compiler that kWidth divides the index
      const Pack<kWidth> x = load_pack<kWidth>(args.from + at);
      if constexpr (kSums) {
        const Pack<kWidth> z = load_pack<kWidth>(args.z + at);
        REPRISE_UNROLL
        for (uint32_t i = 0; i < kWidth; ++i) sums[i] = fmaf(x.at[i], z.at[i], sums[i]);
      }
      Pack<kWidth> y;
      REPRISE_UNROLL
      for (uint32_t i = 0; i < kWidth; ++i) y.at[i] = fmaf(x.at[i], factor.at[i], bias.at[i]);
      store_pack(args.to + at, y);
    }
  }
  if constexpr (kSums) {
    REPRISE_SHARED(float, shared, kWidth * kBlockThreads);
    const float sum = sum_across_warps<kWarps>(shared, sums);
    if (warp_index() < kWidth && k < K) args.partials[blockIdx.y * K + k + warp_index()] = sum;
  }
}

template <uint32_t kWidth, typename Stored>
void launch_scale(const KernelContext& context, const ScaledRows<Stored>& args, const CudaRowChunks& chunks) {
  const dim3 grid = grid_of(parts(parts(args.K, kWidth), kWarpLanes), chunks.count());
  if (args.partials != nullptr) {
    REPRISE_LAUNCH((scale_chunk<kWidth, true, Stored>), grid, kBlockThreads, context.queue, args, chunks);
  } else {
    REPRISE_LAUNCH((scale_chunk<kWidth, false, Stored>), grid, kBlockThreads, context.queue, args, chunks);
  }
}

template <typename Stored>
void scale_rows(const KernelContext& context, const ScaledRows<Stored>& args, const CudaRowChunks& chunks) {
  constexpr uint32_t kWidth = kPackWidth<Stored>;
  args.K % kWidth == 0 ? launch_scale<kWidth>(context, args, chunks) : launch_scale<1>(context, args, chunks);
}

__global__ void __launch_bounds__(kBlockThreads)
    add_magnitude_sums(float* dmagnitudes, const float* norms, const float* partials, uint64_t K, uint32_t chunk_count,
                       bool accumulate) {
  for (uint64_t k = grid_thread(); k < K; k += grid_threads()) {
    double sum = 0;
    for (uint32_t chunk = 0; chunk < chunk_count; ++chunk) sum += static_cast<double>(partials[chunk * K + k]);
    const float norm = norms[k], gradient = norm > 0 ? static_cast<float>(sum / static_cast<double>(norm)) : 0.0f;
    dmagnitudes[k] = accumulate ? dmagnitudes[k] + gradient : gradient;
  }
}

}  // namespace

Status cuda_dora_norms(const KernelContext& context, const DoraNormsArgs& args) {
  const uint64_t C = args.C, K = args.K, R = args.R;
  const CudaDoraScratch scratch = cuda_dora_scratch(C, K, R, args.a.type);
  float* up = static_cast<float*>(args.scratch);
  REPRISE_LAUNCH(lay_up, blocks_for(R * scratch.columns), kBlockThreads, context.queue, up, args.b, args.scale,
                 scratch.columns, K, R);
  LaidAdapter adapter{up, args.a.f32(), scratch.columns, C, K, R};
  if (args.a.type != DType::kF32) {
    float* down = reinterpret_cast<float*>(static_cast<char*>(args.scratch) + scratch.down);
    REPRISE_LAUNCH(decode_matrix<float>, blocks_for(R * C), kBlockThreads, context.queue, down, args.a, R * C);
    adapter.down = down;
  }
  if (args.w.type == DType::kF32) return launch_norms(context, args, PlainReader<float>{args.w.f32()}, adapter);
  if (args.w.type == DType::kBf16) return launch_norms(context, args, PlainReader<Bf16>{args.w.bf16()}, adapter);
  return launch_norms(context, args, AnyReader{args.w}, adapter);
}

template <typename Stored>
Status cuda_dora_forward(const KernelContext& context, const DoraForwardArgsOf<Stored>& args) {
  scale_rows<Stored>(context,
                     {.to = args.y,
                      .from = args.z,
                      .magnitudes = args.magnitudes,
                      .norms = args.norms,
                      .bias = args.bias,
                      .z = nullptr,
                      .partials = nullptr,
                      .M = args.M,
                      .K = args.K},
                     cuda_dora_chunks(args.M, card_size(context)));
  return launch_status();
}

template <typename Stored>
Status cuda_dora_backward(const KernelContext& context, const DoraBackwardArgsOf<Stored>& args) {
  const CudaRowChunks chunks = cuda_dora_chunks(args.M, card_size(context));
  float* partials = args.dmagnitudes != nullptr ? static_cast<float*>(args.scratch) : nullptr;
  scale_rows<Stored>(context,
                     {.to = args.dz,
                      .from = args.dy,
                      .magnitudes = args.magnitudes,
                      .norms = args.norms,
                      .bias = nullptr,
                      .z = args.z,
                      .partials = partials,
                      .M = args.M,
                      .K = args.K},
                     chunks);
  if (partials != nullptr) {
    REPRISE_LAUNCH(add_magnitude_sums, blocks_for(args.K), kBlockThreads, context.queue, args.dmagnitudes, args.norms,
                   partials, uint64_t{args.K}, chunks.count(), args.accumulate_dmagnitudes);
  }
  return launch_status();
}

REPRISE_CUDA_INSTANTIATE(cuda_dora_forward, DoraForwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_dora_backward, DoraBackwardArgs)

}  // namespace reprise
