// Losses on pairs of vectors, and their gradients. The counterpart of lib/cpu/loss/pair_loss.cpp. A
// warp processes a vector, or a row of cosines. Pairs without a target do not count. But they stay
// in the arrays, because the host launches the kernels without reading the targets.
#include "cuda/cuda_kernels.h"
#include "cuda/device_math.h"
#include "cuda/gemm/tile_product.h"
#include "cuda/gemm/tile_source.h"
#include "cuda/grid.h"
#include "cuda/loss/loss_rules.h"
#include "cuda/loss/loss_scalars.h"
#include "cuda/reduce.h"

namespace reprise {
namespace {

constexpr uint32_t kWarps = kBlockThreads / kWarpLanes;
constexpr double kShortest = 1e-12;  // a shorter vector has no direction and becomes 0

template <typename Stored>
struct PairLoss {
  PairLossInputOf<Stored> in;
  Stored* dx;        // null in evaluation
  double* losses;    // [B]
  uint32_t* rights;  // [B]
  float *inverses = nullptr, *units = nullptr, *cosines = nullptr, *slopes = nullptr;
  // [B] each: the largest cosine and the sum of exponentials of each row, then of each column.
  float *largest = nullptr, *sums = nullptr, *column_largest = nullptr, *column_sums = nullptr;

  __device__ bool is_pair(uint64_t i) const { return in.targets[i] == in.targets[i]; }
  __device__ float share(const StepScalars* scalars) const {
    return static_cast<float>(1.0 / static_cast<double>(scalars->step_labelled));
  }
};

// Returns the index of the first pair, vector or row that this warp processes. The warp's next
// index is warps_of_grid() further.
__device__ uint64_t first_of_warp() { return uint64_t{blockIdx.x} * kWarps + warp_index(); }
__device__ uint64_t warps_of_grid() { return uint64_t{gridDim.x} * kWarps; }
uint32_t blocks_of_warps(uint64_t count) {
  return static_cast<uint32_t>(maximum(1, minimum(parts(count, kWarps), kMaxBlocks)));
}

__device__ float product_of_warp(const float* a, const float* b, uint32_t D) {
  float sum = 0;
  for (uint32_t c = lane_index(); c < D; c += kWarpLanes) sum = fmaf(a[c], b[c], sum);
  return warp_sum(sum);
}

// Normalises all vectors: vector v of side s becomes unit s * B + v.
template <typename Stored>
__global__ void __launch_bounds__(kBlockThreads) make_units_warp_row(const PairLoss<Stored> all) {
  const uint64_t B = all.in.B;
  const uint32_t D = all.in.D;
  for (uint64_t row = first_of_warp(); row < 2 * B; row += warps_of_grid()) {
    const uint64_t to = row % 2 * B + row / 2;
    const Stored* x = all.in.x + row * D;
    double squares = 0;
    for (uint32_t c = lane_index(); c < D; c += kWarpLanes)
      squares = fma(static_cast<double>(float{x[c]}), static_cast<double>(float{x[c]}), squares);
    const double length = sqrt(warp_sum(squares));
    const double inverse = !all.is_pair(row / 2) || length < kShortest ? 0.0 : 1.0 / length;
    for (uint32_t c = lane_index(); c < D; c += kWarpLanes) {
      all.units[to * D + c] =
          all.is_pair(row / 2) ? static_cast<float>(static_cast<double>(float{x[c]}) * inverse) : 0.0f;
    }
    if (lane_index() == 0) all.inverses[to] = static_cast<float>(inverse);
  }
}

// ---- losses that use one pair alone ----

struct Judged {
  float loss, slope;  // slope: derivative of the loss with respect to the cosine
  bool is_right;
};
__device__ Judged judge_cosine(const PairLossAttribute& loss, float cosine, float target) {
  if (loss.kind == static_cast<uint32_t>(PairLossKind::kSimilarity)) {
    const float d = cosine - target;
    return {d * d, 2.0f * d, false};
  }
  const bool is_near = cosine > 0.5f * (1.0f + loss.margin);
  if (target > 0.0f) return {1.0f - cosine, -1.0f, is_near};
  const float within = cosine * 0.0f;  // NaN stays NaN
  return {cosine > loss.margin ? cosine - loss.margin : within, cosine > loss.margin ? 1.0f : within, !is_near};
}

template <typename Stored>
__global__ void __launch_bounds__(kBlockThreads)
    judge_alone_warp_pair(const PairLoss<Stored> all, const StepScalars* scalars) {
  const uint64_t B = all.in.B;
  const uint32_t D = all.in.D;
  for (uint64_t i = first_of_warp(); i < B; i += warps_of_grid()) {
    const float *a = all.units + i * D, *b = all.units + (B + i) * D;
    const float cosine = product_of_warp(a, b, D);
    const Judged judged = judge_cosine(all.in.loss, cosine, all.is_pair(i) ? all.in.targets[i] : 0.0f);
    if (lane_index() == 0) {
      all.losses[i] = all.is_pair(i) ? static_cast<double>(judged.loss) : 0.0;
      all.rights[i] = all.is_pair(i) && judged.is_right;
    }
    if (all.dx == nullptr) continue;
    const float by_cosine = all.is_pair(i) ? judged.slope * all.share(scalars) : 0.0f;
    Stored *da = all.dx + 2 * i * D, *db = da + D;
    for (uint32_t c = lane_index(); c < D; c += kWarpLanes) {
      da[c] = fmaf(-cosine, a[c], b[c]) * (by_cosine * all.inverses[i]);
      db[c] = fmaf(-cosine, b[c], a[c]) * (by_cosine * all.inverses[B + i]);
    }
  }
}

// ---- contrast: losses that compare a pair with the other pairs ----

// Sums the exponentials of each row. First sets cosines of pairs that do not count as negatives to
// -infinity, so that their exponentials and derivatives are 0.
template <typename Stored>
__global__ void __launch_bounds__(kBlockThreads) sum_rows_warp_row(const PairLoss<Stored> all) {
  const uint64_t B = all.in.B;
  const float sharpness = 1.0f / all.in.loss.temperature;
  for (uint64_t i = first_of_warp(); i < B; i += warps_of_grid()) {
    float* cosine = all.cosines + i * B;
    float largest = -__builtin_inff(), sum = 0;
    for (uint64_t j = lane_index(); j < B; j += kWarpLanes) {
      if (j != i && is_no_negative(all.in.targets[i], all.in.targets[j])) cosine[j] = -__builtin_inff();
    }
    for (uint64_t j = lane_index(); j < B; j += kWarpLanes)
      largest = all.is_pair(j) && cosine[j] > largest ? cosine[j] : largest;
    largest = warp_max(largest);
    uint64_t first = ~uint64_t{0};
    for (uint64_t j = lane_index(); j < B; j += kWarpLanes) {
      if (!all.is_pair(j)) continue;
      sum += device_exp((cosine[j] - largest) * sharpness);
      if (cosine[j] == largest && j < first) first = j;
    }
    sum = warp_sum(sum);
    first = warp_min(first);
    if (lane_index() == 0) all.largest[i] = largest, all.sums[i] = sum, all.rights[i] = all.is_pair(i) && first == i;
  }
}

// Sums the exponentials of each column. A thread processes a column; neighbouring threads read
// neighbouring columns.
template <typename Stored>
__global__ void __launch_bounds__(kBlockThreads) sum_columns_thread_column(const PairLoss<Stored> all) {
  const uint64_t B = all.in.B;
  const float sharpness = 1.0f / all.in.loss.temperature;
  for (uint64_t j = grid_thread(); j < B; j += grid_threads()) {
    float largest = -__builtin_inff(), sum = 0;
    for (uint64_t i = 0; i < B; ++i)
      largest = all.is_pair(i) && all.cosines[i * B + j] > largest ? all.cosines[i * B + j] : largest;
    for (uint64_t i = 0; i < B; ++i) {
      if (all.is_pair(i)) sum += device_exp((all.cosines[i * B + j] - largest) * sharpness);
    }
    all.column_largest[j] = largest, all.column_sums[j] = sum;
  }
}

// Returns -log of the softmax of `own`. `sum` is the sum of exponentials relative to `largest`.
__device__ double log_share(float sum, float largest, float own, float sharpness) {
  return fma(static_cast<double>(largest - own), static_cast<double>(sharpness), device_log(static_cast<double>(sum)));
}
template <typename Stored>
__global__ void __launch_bounds__(kBlockThreads) contrast_losses(const PairLoss<Stored> all) {
  const uint64_t B = all.in.B;
  const float sharpness = 1.0f / all.in.loss.temperature;
  for (uint64_t i = grid_thread(); i < B; i += grid_threads()) {
    const float own = all.cosines[i * B + i];
    double loss = all.is_pair(i) ? log_share(all.sums[i], all.largest[i], own, sharpness) : 0.0;
    if (all.in.loss.symmetric != 0 && all.is_pair(i))
      loss = 0.5 * (loss + log_share(all.column_sums[i], all.column_largest[i], own, sharpness));
    all.losses[i] = loss;
  }
}

// Replaces each cosine by the derivative of the loss with respect to the cosine.
template <typename Stored>
__global__ void __launch_bounds__(kBlockThreads) slope_cosines(const PairLoss<Stored> all, const StepScalars* scalars) {
  const uint64_t B = all.in.B;
  const float sharpness = 1.0f / all.in.loss.temperature, scale = all.share(scalars) * sharpness;
  for (uint64_t n = grid_thread(); n < B * B; n += grid_threads()) {
    const uint64_t i = n / B, j = n % B;
    if (!all.is_pair(i) || !all.is_pair(j)) {
      all.cosines[n] = 0.0f;
      continue;
    }
    const float cosine = all.cosines[n];
    float part = device_exp((cosine - all.largest[i]) * sharpness) / all.sums[i];
    if (all.in.loss.symmetric != 0)
      part = 0.5f * (part + device_exp((cosine - all.column_largest[j]) * sharpness) / all.column_sums[j]);
    all.cosines[n] = scale * (i == j ? part - 1.0f : part);
  }
}

// Computes dx from the gradients with respect to the units. The component of such a gradient along
// its unit has no effect on dx.
template <typename Stored>
__global__ void __launch_bounds__(kBlockThreads) write_slopes_warp_row(const PairLoss<Stored> all) {
  const uint64_t B = all.in.B;
  const uint32_t D = all.in.D;
  for (uint64_t row = first_of_warp(); row < 2 * B; row += warps_of_grid()) {
    const uint64_t from = row % 2 * B + row / 2;
    const float *slope = all.slopes + from * D, *unit = all.units + from * D;
    const float along = product_of_warp(slope, unit, D);
    for (uint32_t c = lane_index(); c < D; c += kWarpLanes) {
      all.dx[row * D + c] = all.is_pair(row / 2) ? fmaf(-along, unit[c], slope[c]) * all.inverses[from] : 0.0f;
    }
  }
}

// ---- the loss of all pairs ----

template <typename Stored>
__global__ void __launch_bounds__(kBlockThreads) add_pair_losses(const PairLoss<Stored> all, StepScalars* scalars) {
  REPRISE_SHARED(double, shared, kWarps);
  REPRISE_SHARED(uint64_t, counts, kWarps);
  double loss = 0;
  uint64_t labelled = 0, correct = 0;
  for (uint64_t i = threadIdx.x; i < all.in.B; i += kBlockThreads) {
    loss += all.losses[i];
    labelled += all.is_pair(i);
    correct += all.rights[i];
  }
  loss = block_sum<kWarps>(shared, loss);
  labelled = block_sum<kWarps>(counts, labelled);
  correct = block_sum<kWarps>(counts, correct);
  const bool is_counted = all.in.loss.kind != static_cast<uint32_t>(PairLossKind::kSimilarity);
  if (threadIdx.x == 0 && labelled > 0) add_loss(scalars, loss, labelled, is_counted ? correct : 0, all.dx != nullptr);
}

// A separate type of output, so that the products of this file are separate kernels.
struct PairOutput : TileOutput<float> {};

// Computes the product of two f32 operands by small tiles, because the products of a batch of pairs
// are small.
template <typename A, typename B>
void multiply(const KernelContext& context, const A& a, const B& b, float* c, const ProductShape& shape) {
  const uint64_t N = shape.columns;
  const PairOutput to = {{c, {N}, nullptr, false, N % 4 == 0, shape.outputs()}};
  launch_product_by<SmallTile>(context, TileProduct<A, B, PairOutput>{a, b, to, shape, shape.depth, nullptr});
}

template <typename Stored>
void contrast(const KernelContext& context, const PairLoss<Stored>& all, StepScalars* scalars) {
  const uint64_t B = all.in.B, D = all.in.D;
  float *firsts = all.units, *seconds = all.units + B * D;
  multiply(context, RowsSource<float>{firsts, B, D}, RowsSource<float>{seconds, B, D}, all.cosines, {B, B, D});
  REPRISE_LAUNCH(sum_rows_warp_row<Stored>, blocks_of_warps(B), kBlockThreads, context.queue, all);
  if (all.in.loss.symmetric != 0)
    REPRISE_LAUNCH(sum_columns_thread_column<Stored>, blocks_for(B), kBlockThreads, context.queue, all);
  REPRISE_LAUNCH(contrast_losses<Stored>, blocks_for(B), kBlockThreads, context.queue, all);
  if (all.dx == nullptr) return;
  REPRISE_LAUNCH(slope_cosines<Stored>, blocks_for(B * B), kBlockThreads, context.queue, all, scalars);
  multiply(context, RowsSource<float>{all.cosines, B, B}, ColumnsSource<float>{seconds, D, D}, all.slopes, {B, D, B});
  multiply(context, ColumnsSource<float>{all.cosines, B, B}, ColumnsSource<float>{firsts, D, D}, all.slopes + B * D,
           {B, D, B});
  REPRISE_LAUNCH(write_slopes_warp_row<Stored>, blocks_of_warps(2 * B), kBlockThreads, context.queue, all);
}

template <typename Stored>
Status judge(const KernelContext& context, Stored* dx, const PairLossInputOf<Stored>& in, StepScalars* scalars) {
  const bool contrasts = in.loss.kind == static_cast<uint32_t>(PairLossKind::kContrast);
  const CudaPairLossScratch s = cuda_pair_loss_scratch(in.B, in.D, contrasts, dx != nullptr);
  unsigned char* base = static_cast<unsigned char*>(in.scratch);
  const auto floats = [base](uint64_t at) { return reinterpret_cast<float*>(base + at); };
  PairLoss<Stored> all = {in, dx, reinterpret_cast<double*>(base), reinterpret_cast<uint32_t*>(base + s.rights_at)};
  all.inverses = floats(s.inverses_at), all.units = floats(s.units_at), all.cosines = floats(s.cosines_at),
  all.slopes = floats(s.slopes_at);
  all.largest = floats(s.sums_at), all.sums = all.largest + in.B, all.column_largest = all.sums + in.B,
  all.column_sums = all.column_largest + in.B;
  REPRISE_LAUNCH(make_units_warp_row<Stored>, blocks_of_warps(2 * in.B), kBlockThreads, context.queue, all);
  if (contrasts) {
    contrast(context, all, scalars);
  } else {
    REPRISE_LAUNCH(judge_alone_warp_pair<Stored>, blocks_of_warps(in.B), kBlockThreads, context.queue, all, scalars);
  }
  REPRISE_RETURN_IF_ERROR(launch_status());
  REPRISE_LAUNCH(add_pair_losses<Stored>, 1, kBlockThreads, context.queue, all, scalars);
  return launch_status();
}

}  // namespace

template <typename Stored>
Status cuda_pair_loss_backward(const KernelContext& context, const PairLossBackwardArgsOf<Stored>& args) {
  return judge(context, args.dx, args.in, args.scalars);
}
template <typename Stored>
Status cuda_pair_loss_evaluate(const KernelContext& context, const PairLossEvaluateArgsOf<Stored>& args) {
  return judge(context, static_cast<Stored*>(nullptr), args.in, args.scalars);
}

REPRISE_CUDA_INSTANTIATE(cuda_pair_loss_backward, PairLossBackwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_pair_loss_evaluate, PairLossEvaluateArgs)

}  // namespace reprise
