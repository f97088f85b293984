// The gradients' norm: a sum of squares per tensor, then one norm and the clip factor.
// Here as the twin of lib/cpu/grad_norm.cpp. A block takes a tensor, because a row that reduces has no scratch for the sums of several.
#include "cuda/cuda_kernels.h"
#include "cuda/device_math.h"
#include "cuda/grid.h"
#include "cuda/pack.h"
#include "cuda/reduce.h"

namespace reprise {
namespace {

constexpr uint32_t kNormThreads = 512;
constexpr uint32_t kNormWarps = kNormThreads / kWarpLanes;

// ---- the squares of some floats, as exact as doubles have them, mostly without doubles, of which small devices do few ----

constexpr uint32_t kWide = kPackWidth<float>;
constexpr uint32_t kPacks = 8;  // that a thread holds at once

// high + low = a + b exactly (Knuth 1969, volume 2, section 4.2.2), as long as nobody fuses what is not written as fmaf.
struct TwoSum {
  float high, low;

  __device__ TwoSum(float a, float b) {
    high = a + b;
    const float of_b = high - a;
    low = (a - (high - of_b)) + (b - of_b);
  }
};

// A sum of floats in three: each takes what the one before it rounds away.
struct ExactSum {
  float high = 0, low = 0, lowest = 0;

  // x^2 = p + fmaf(x, x, -p), p rounded.
  __device__ void add_square(float x) {
    const float square = x * x;
    const TwoSum first(high, square), second(low, first.low), third(second.high, fmaf(x, x, -square));
    high = first.high;
    low = third.high;
    lowest += second.low + third.low;
  }
  __device__ double value() const { return static_cast<double>(high) + (static_cast<double>(low) + static_cast<double>(lowest)); }
};

// This holds while no square overflows, and while what falls below the normal numbers is nothing against the sum: then *exact, else the
// caller must use doubles.
template <uint32_t kCount>
__device__ double sum_squares_in_floats(const Pack<kWide> (&x)[kCount], bool* exact) {
  ExactSum sum;
  uint32_t bits = 0;
  REPRISE_UNROLL
  for (uint32_t i = 0; i < kCount; ++i) {
    REPRISE_UNROLL
    for (uint32_t k = 0; k < kWide; ++k) {
      sum.add_square(x[i].at[k]);
      bits |= std::bit_cast<uint32_t>(x[i].at[k]) << 1;  // without the sign
    }
  }
  *exact = bits == 0 || (sum.high > 0x1p-60f && sum.high < 0x1p+120f);
  return sum.value();
}

template <uint32_t kCount>
__device__ double sum_squares(const Pack<kWide> (&x)[kCount]) {
  bool exact;
  double sum = sum_squares_in_floats(x, &exact);
  if (exact) return sum;
  sum = 0;
  for (const Pack<kWide>& pack : x) {
    for (const float v : pack.at) sum = fma(static_cast<double>(v), static_cast<double>(v), sum);
  }
  return sum;
}

// ---- reduce ----

constexpr uint32_t kBatch = 128;  // tensors of one launch: their places travel with it

struct TensorBatch {
  struct {
    uint64_t first, elements;  // floats from the group's start
  } tensors[kBatch];
};

// A thread's share of x[n], by neighbouring packs of `threads` threads.
__device__ inline double sum_share(const float* x, uint64_t n, uint32_t threads) {
  const uint64_t whole = n / kWide;
  double sum = 0;
  for (uint64_t first = threadIdx.x; first < whole; first += kPacks * threads) {
    Pack<kWide> held[kPacks] = {};
    REPRISE_UNROLL
    for (uint32_t h = 0; h < kPacks; ++h) {
      const uint64_t i = first + h * threads;
      if (i < whole) held[h] = load_pack<kWide>(x + i * kWide);
    }
    sum += sum_squares(held);
  }
  if (threadIdx.x >= n % kWide) return sum;
  const auto v = static_cast<double>(x[whole * kWide + threadIdx.x]);
  return fma(v, v, sum);
}

// The first warp alone takes a small tensor. How a tensor is summed follows from its own size, never from its neighbours.
__global__ void __launch_bounds__(kNormThreads) sum_tensor_squares(double* norms, const float* gradients, const TensorBatch batch) {
  REPRISE_SHARED(double, shared, kNormWarps);
  const float* x = gradients + batch.tensors[blockIdx.x].first;
  const uint64_t n = batch.tensors[blockIdx.x].elements;
  if (n <= kPacks * kWide * kWarpLanes) {
    if (warp_index() > 0) return;
    const double sum = warp_sum(sum_share(x, n, kWarpLanes));
    if (threadIdx.x == 0) norms[blockIdx.x] = sum;
    return;
  }
  const double sum = block_sum<kNormWarps>(shared, sum_share(x, n, kNormThreads));
  if (threadIdx.x == 0) norms[blockIdx.x] = sum;
}

// ---- finish ----

constexpr uint32_t kWarps = kBlockThreads / kWarpLanes;

__global__ void __launch_bounds__(kBlockThreads) finish_norm(const GradNormFinishArgs args) {
  REPRISE_SHARED(double, shared, kWarps);
  double sum = 0;
  for (uint32_t i = threadIdx.x; i < args.count; i += kBlockThreads) sum += args.norms[i];
  sum = block_sum<kWarps>(shared, sum);
  if (threadIdx.x != 0) return;
  const double norm = sqrt(sum), factor = static_cast<double>(args.max_norm) / (norm + 1e-6);
  args.scalars->gradient_norm = static_cast<float>(norm);
  args.scalars->clip_factor = args.max_norm == 0 || !(factor < 1) ? 1.0f : static_cast<float>(factor);
  if (!is_finite(norm)) args.scalars->skip = 1;
}

}  // namespace

Status cuda_grad_norm_reduce(const KernelContext& context, const GradNormReduceArgs& args) {
  for (uint32_t first = 0; first < args.count; first += kBatch) {
    const auto count = static_cast<uint32_t>(least(kBatch, args.count - first));
    TensorBatch batch = {};
    for (uint32_t t = 0; t < count; ++t) {
      const Tensor& tensor = args.tensors[first + t];
      batch.tensors[t] = {(tensor.offset - args.tensors[0].offset) / sizeof(float), tensor.elements()};
    }
    REPRISE_LAUNCH(sum_tensor_squares, count, kNormThreads, context.queue, args.norms + first, args.gradients, batch);
    REPRISE_RETURN_IF_ERROR(launch_status());
  }
  return ok_status();
}

Status cuda_grad_norm_finish(const KernelContext& context, const GradNormFinishArgs& args) {
  REPRISE_LAUNCH(finish_norm, 1, kBlockThreads, context.queue, args);
  return launch_status();
}

}  // namespace reprise
