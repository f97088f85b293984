// The gradients' norm: a sum of squares for each tensor, then the norm of all tensors and the clip
// factor. The counterpart of lib/cpu/norm/grad_norm.cpp. A block sums a part of a tensor
// (grad_norm_rules.h), so that many blocks share a large tensor.
#include "cuda/cuda_kernels.h"
#include "cuda/device_math.h"
#include "cuda/gemm/pack.h"
#include "cuda/grid.h"
#include "cuda/norm/grad_norm_rules.h"
#include "cuda/reduce.h"

namespace reprise {
namespace {

constexpr uint32_t kNormThreads = 512;
constexpr uint32_t kNormWarps = kNormThreads / kWarpLanes;

// ---- squares of floats, as exact as in doubles but mostly in floats, which are faster ----

constexpr uint32_t kWide = kPackWidth<float>;
constexpr uint32_t kPacks = 8;  // packs that a thread has in registers at once
static_assert(kCudaNormPart == kPacks * kWide * kNormThreads, "a block holds a part at once");

// The exact sum of two floats: high + low == a + b (Knuth 1969, volume 2, section 4.2.2). Requires
// that the compiler fuses only products that are written as fmaf.
struct TwoSum {
  float high, low;

  __device__ TwoSum(float a, float b) {
    high = a + b;
    const float of_b = high - a;
    low = (a - (high - of_b)) + (b - of_b);
  }
};

// A sum of floats in three floats: `low` sums the rounding errors of `high`, and `lowest` sums the
// rounding errors of `low`.
struct ExactSum {
  float high = 0, low = 0, lowest = 0;

  // Adds x^2 = p + fmaf(x, x, -p), where p is the rounded square.
  __device__ void add_square(float x) {
    const float square = x * x;
    const TwoSum first(high, square), second(low, first.low), third(second.high, fmaf(x, x, -square));
    high = first.high;
    low = third.high;
    lowest += second.low + third.low;
  }
  __device__ double value() const {
    return static_cast<double>(high) + (static_cast<double>(low) + static_cast<double>(lowest));
  }
};

// Returns the sum of squares. Sets *exact to true if no square overflows and if the underflow of
// squares is negligible in the sum. If *exact is false, the caller must sum in doubles.
template <uint32_t kCount>
__device__ double sum_squares_in_floats(const Pack<kWide> (&x)[kCount], bool* exact) {
  ExactSum sum;
  uint32_t bits = 0;
  REPRISE_UNROLL
  for (uint32_t i = 0; i < kCount; ++i) {
    REPRISE_UNROLL
    for (uint32_t k = 0; k < kWide; ++k) {
      sum.add_square(x[i].at[k]);
      bits |= std::bit_cast<uint32_t>(x[i].at[k]) << 1;  // all bits except the sign
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

constexpr uint32_t kBatch = 128;  // maximum number of tensors that one launch sums

struct TensorBatch {
  struct {
    uint64_t first, elements;  // first: floats from the group's start to the tensor; elements: floats of the tensor
    uint32_t first_block;      // first of the blocks that sum the tensor's parts
  } tensors[kBatch];
  uint32_t count;

  // Returns the tensor of which `block` sums a part.
  __device__ uint32_t of_block(uint32_t block) const {
    uint32_t tensor = 0;
    REPRISE_UNROLL
    for (uint32_t step = kBatch / 2; step > 0; step /= 2) {
      const uint32_t next = tensor + step;
      if (next < count && tensors[next].first_block <= block) tensor = next;
    }
    return tensor;
  }
};

// Returns this thread's part of the sum of squares over x[n]. `threads` threads load all of x into
// registers at once; neighbouring threads have neighbouring packs.
__device__ inline double sum_share(const float* x, uint32_t n, uint32_t threads) {
  const uint32_t whole = n / kWide;
  Pack<kWide> held[kPacks] = {};
  REPRISE_UNROLL
  for (uint32_t h = 0; h < kPacks; ++h) {
    const uint32_t i = threadIdx.x + h * threads;
    if (i < whole) held[h] = load_pack<kWide>(x + i * kWide);
  }
  const double sum = sum_squares(held);
  if (threadIdx.x >= n % kWide) return sum;
  const auto v = static_cast<double>(x[whole * kWide + threadIdx.x]);
  return fma(v, v, sum);
}

// Returns the sum of squares over x[n] to the block's first thread. If x fits the registers of one
// warp, only the first warp sums.
__device__ inline double sum_part(const float* x, uint32_t n) {
  REPRISE_SHARED(double, of_warp, kNormWarps);
  const bool one_warp = n <= kPacks * kWide * kWarpLanes;
  if (one_warp && warp_index() > 0) return 0;
  const double share = warp_sum(sum_share(x, n, one_warp ? kWarpLanes : kNormThreads));
  if (one_warp) return share;
  if (lane_index() == 0) of_warp[warp_index()] = share;
  __syncthreads();
  double sum = 0;
  if (threadIdx.x == 0) {
    for (uint32_t w = 0; w < kNormWarps; ++w) sum += of_warp[w];
  }
  return sum;
}

// Sums the squares of each part of each tensor; one block sums one part. The order of a tensor's
// sum depends only on the size of the tensor, not on the other tensors of the batch.
__global__ void __launch_bounds__(kNormThreads)
    sum_tensor_squares(double* norms, double* part_sums, const float* gradients, const TensorBatch batch) {
  const uint32_t t = batch.of_block(blockIdx.x);
  const uint64_t elements = batch.tensors[t].elements;
  const uint64_t begin = (blockIdx.x - batch.tensors[t].first_block) * kCudaNormPart;
  const auto n = static_cast<uint32_t>(minimum(kCudaNormPart, elements - begin));
  const double sum = sum_part(gradients + batch.tensors[t].first + begin, n);
  if (threadIdx.x != 0) return;
  if (elements <= kCudaNormPart) {
    norms[t] = sum;
  } else {
    part_sums[blockIdx.x] = sum;
  }
}

constexpr uint32_t kWarps = kBlockThreads / kWarpLanes;

// Adds the parts of each tensor; one block adds one tensor. A tensor of one part is already in
// `norms`.
__global__ void __launch_bounds__(kBlockThreads)
    add_part_sums(double* norms, const double* part_sums, const TensorBatch batch) {
  REPRISE_SHARED(double, shared, kWarps);
  const auto count = static_cast<uint32_t>(cuda_norm_parts(batch.tensors[blockIdx.x].elements));
  if (count == 1) return;
  const double* own = part_sums + batch.tensors[blockIdx.x].first_block;
  double sum = 0;
  for (uint32_t i = threadIdx.x; i < count; i += kBlockThreads) sum += own[i];
  sum = block_sum<kWarps>(shared, sum);
  if (threadIdx.x == 0) norms[blockIdx.x] = sum;
}

// ---- finish ----

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

// Reduces the tensors in batches. All batches use the same scratch, because the queue runs them one
// after the other.
Status cuda_grad_norm_reduce(const KernelContext& context, const GradNormReduceArgs& args) {
  auto* part_sums = static_cast<double*>(args.scratch);
  for (uint32_t first = 0; first < args.count; first += kBatch) {
    TensorBatch batch = {};
    batch.count = static_cast<uint32_t>(minimum(kBatch, args.count - first));
    uint32_t blocks = 0;
    for (uint32_t t = 0; t < batch.count; ++t) {
      const Tensor& tensor = args.tensors[first + t];
      batch.tensors[t] = {(tensor.offset - args.tensors[0].offset) / sizeof(float), tensor.elements(), blocks};
      blocks += static_cast<uint32_t>(cuda_norm_parts(tensor.elements()));
    }
    REPRISE_LAUNCH(sum_tensor_squares, blocks, kNormThreads, context.queue, args.norms + first, part_sums,
                   args.gradients, batch);
    REPRISE_RETURN_IF_ERROR(launch_status());
    if (blocks == batch.count) continue;
    REPRISE_LAUNCH(add_part_sums, batch.count, kBlockThreads, context.queue, args.norms + first, part_sums, batch);
    REPRISE_RETURN_IF_ERROR(launch_status());
  }
  return ok_status();
}

Status cuda_grad_norm_finish(const KernelContext& context, const GradNormFinishArgs& args) {
  REPRISE_LAUNCH(finish_norm, 1, kBlockThreads, context.queue, args);
  return launch_status();
}

}  // namespace reprise
