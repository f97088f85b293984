// Cross-entropy of classes, Dice's coefficient, and the gradients of both. The counterpart of
// lib/cpu/loss/class_loss.cpp. A warp processes a row. For Dice, an earlier launch computes sums
// over rows; in that launch, a thread sums one class over some rows.
#include "cuda/cuda_kernels.h"
#include "cuda/data_fault.h"
#include "cuda/device_math.h"
#include "cuda/grid.h"
#include "cuda/loss/loss_rules.h"
#include "cuda/reduce.h"

namespace reprise {
namespace {

constexpr uint32_t kWarps = kBlockThreads / kWarpLanes;
constexpr double kDiceSmoothing = 1e-5;

// Sums over all rows. If has_fault is 1, no row counts.
struct LabelSums {
  double labelled, weight;  // number of labelled rows; sum of the weights of their classes
  uint64_t has_fault;       // 1 if a label is not a class
};
struct RowExponentials {
  float largest, sum;
};

template <typename Stored>
struct ClassLoss {
  ClassLossInputOf<Stored> in;
  Stored* dx;  // null in evaluation
  LabelSums* labels;
  CudaLossTally* tallies;  // one for each block of judge_class_rows
  double* overlaps;        // [N]: Dice's part of each sample's loss
  RowExponentials* rows;   // [M]
  double* sums;            // [N, parts, 3, C]: sums of the labels' probabilities, of all probabilities, of labels
  // [N, 2, C]; null without Dice. First the derivative of Dice with respect to each class's
  // probability. Then the value that is subtracted from the derivative in rows with this label.
  float* slopes;
  uint64_t blocks, parts;  // blocks of judge_class_rows; parts of a sample in `sums`

  __device__ float weight(uint32_t c) const { return in.weights == nullptr ? 1.0f : in.weights[c]; }
  // Returns the number of labels in the step; in evaluation, in this micro-batch. divisor() returns
  // the sum of the labels' weights.
  __device__ double labelled(const StepScalars* scalars) const {
    return dx == nullptr ? labels->labelled : static_cast<double>(scalars->step_labelled);
  }
  __device__ double divisor(const StepScalars* scalars) const {
    return dx == nullptr ? labels->weight : scalars->step_weight;
  }
};

template <typename Stored>
__global__ void __launch_bounds__(kBlockThreads)
    count_class_labels(const ClassLoss<Stored> all, StepScalars* scalars, uint32_t row) {
  REPRISE_SHARED(double, shared, kWarps);
  REPRISE_SHARED(uint64_t, positions, kWarps);
  double labelled = 0, weight = 0;
  uint64_t first_bad = kNoFault;
  for (uint64_t i = threadIdx.x; i < all.in.M; i += kBlockThreads) {
    if (!all.in.is_labelled(i)) continue;
    const int32_t label = all.in.label(i);
    if (label < 0 || static_cast<uint32_t>(label) >= all.in.C) {
      if (first_bad == kNoFault) first_bad = i;
      continue;
    }
    labelled += 1;
    weight += static_cast<double>(all.weight(static_cast<uint32_t>(label)));
  }
  labelled = block_sum<kWarps>(shared, labelled);
  weight = block_sum<kWarps>(shared, weight);
  first_bad = block_min<kWarps>(positions, first_bad);
  if (threadIdx.x != 0) return;
  *all.labels = {labelled, weight, first_bad != kNoFault};
  note_fault(scalars, DataFault::kLabel, row, first_bad);
}

// Computes the maximum and the sum of exponentials of each row; a warp processes a row. The maximum
// ignores NaN, but the exponential of NaN makes the sum NaN.
template <typename Stored>
__global__ void __launch_bounds__(kBlockThreads) sum_class_rows(const ClassLoss<Stored> all) {
  const uint64_t row = uint64_t{blockIdx.x} * kWarps + warp_index();
  if (row >= all.in.M) return;
  const Stored* x = all.in.x + row * all.in.C;
  float largest = -__builtin_inff(), sum = 0;
  for (uint32_t c = lane_index(); c < all.in.C; c += kWarpLanes) {
    const float z = x[c];
    largest = z > largest ? z : largest;
  }
  largest = warp_max(largest);
  for (uint32_t c = lane_index(); c < all.in.C; c += kWarpLanes) sum += device_exp(float{x[c]} - largest);
  sum = warp_sum(sum);
  if (lane_index() == 0) all.rows[row] = {largest, sum};
}

// Computes the sums of Dice. A block processes some rows of a sample; a thread sums one class.
template <typename Stored>
__global__ void __launch_bounds__(kBlockThreads) sum_overlaps(const ClassLoss<Stored> all) {
  const uint32_t C = all.in.C;
  const uint64_t rows_of_sample = all.in.M / all.in.N, sample = blockIdx.x / all.parts, part = blockIdx.x % all.parts;
  const uint64_t first = part * kOverlapRowsOfBlock, end = minimum(rows_of_sample, first + kOverlapRowsOfBlock);
  double* sums = all.sums + uint64_t{blockIdx.x} * 3 * C;
  for (uint32_t c = threadIdx.x; c < C; c += kBlockThreads) {
    double hits = 0, predicted = 0, wanted = 0;
    for (uint64_t r = first; r < end && all.labels->has_fault == 0; ++r) {
      const uint64_t row = sample * rows_of_sample + r;
      if (!all.in.is_labelled(row)) continue;
      const auto p = static_cast<double>(device_exp(float{all.in.x[row * C + c]} - all.rows[row].largest) *
                                         (1.0f / all.rows[row].sum));
      const bool is_label = static_cast<uint32_t>(all.in.label(row)) == c;
      predicted += p;
      if (is_label) hits += p, wanted += 1;
    }
    sums[c] = hits, sums[C + c] = predicted, sums[2 * uint64_t{C} + c] = wanted;
  }
}

// Computes the derivatives of Dice with respect to the probabilities, and Dice's part of the loss.
// A block processes a sample.
template <typename Stored>
__global__ void __launch_bounds__(kBlockThreads)
    settle_overlaps(const ClassLoss<Stored> all, const StepScalars* scalars) {
  REPRISE_SHARED(double, shared, kWarps);
  const uint32_t C = all.in.C;
  double* sums = all.sums + uint64_t{blockIdx.x} * all.parts * 3 * C;
  double labelled = 0, coefficients = 0;
  for (uint32_t c = threadIdx.x; c < C; c += kBlockThreads) {
    for (uint64_t part = 1; part < all.parts; ++part) {
      for (uint32_t k = 0; k < 3; ++k) sums[uint64_t{k} * C + c] += sums[(part * 3 + k) * C + c];
    }
    labelled += sums[2 * uint64_t{C} + c];
  }
  labelled = block_sum<kWarps>(shared, labelled);
  const double share = static_cast<double>(all.in.loss.dice) * labelled / all.labelled(scalars);
  float* slopes = all.slopes + uint64_t{blockIdx.x} * 2 * C;
  for (uint32_t c = threadIdx.x; c < C; c += kBlockThreads) {
    const double both = sums[C + c] + sums[2 * uint64_t{C} + c] + kDiceSmoothing,
                 coefficient = (2 * sums[c] + kDiceSmoothing) / both;
    coefficients += coefficient;
    slopes[c] = static_cast<float>(share * coefficient / (both * C));
    slopes[C + c] = static_cast<float>(share * 2 / (both * C));
  }
  coefficients = block_sum<kWarps>(shared, coefficients);
  if (threadIdx.x == 0) all.overlaps[blockIdx.x] = labelled == 0 ? 0 : share * (1 - coefficients / C);
}

// True if `label` is the class that the row predicts: the first of its largest logits. All lanes of
// a warp must call the function.
template <typename Stored>
__device__ bool predicts(const ClassLoss<Stored>& all, uint64_t row, uint32_t label, float largest) {
  const Stored* x = all.in.x + row * all.in.C;
  uint64_t earlier = 0;
  for (uint32_t c = lane_index(); c < label; c += kWarpLanes) earlier += float{x[c]} == largest;
  return warp_sum(earlier) == 0 && float{x[label]} == largest;
}

// Returns the cross-entropy of a labelled row, not yet divided by divisor(). Also computes the row
// of dx, unless dx is null. A warp processes a row.
template <typename Stored>
__device__ double judge_row(const ClassLoss<Stored>& all, uint64_t row, const StepScalars* scalars) {
  const uint32_t C = all.in.C, label = static_cast<uint32_t>(all.in.label(row));
  const Stored* x = all.in.x + row * C;
  const auto [largest, sum] = all.rows[row];
  const float* slopes = all.slopes == nullptr ? nullptr : all.slopes + row / (all.in.M / all.in.N) * 2 * C;
  float of_slopes = 0, of_weights = 0, all_weights = 0;
  for (uint32_t c = lane_index(); c < C; c += kWarpLanes) {
    const float above = float{x[c]} - largest;
    of_weights = fmaf(above, all.weight(c), of_weights);
    all_weights += all.weight(c);
    if (slopes != nullptr) of_slopes = fmaf(device_exp(above), slopes[c], of_slopes);
  }
  of_weights = warp_sum(of_weights), all_weights = warp_sum(all_weights), of_slopes = warp_sum(of_slopes);
  const double smoothed = static_cast<double>(all.in.loss.label_smoothing), even = smoothed / C;
  const double share = (1.0 - static_cast<double>(all.in.loss.dice)) / all.divisor(scalars),
               own = (1 - smoothed) * static_cast<double>(all.weight(label));
  const float of_label = float{x[label]} - largest;
  const double log_sum = device_log(static_cast<double>(sum));
  const double loss = own * (log_sum - static_cast<double>(of_label)) +
                      even * (static_cast<double>(all_weights) * log_sum - static_cast<double>(of_weights));
  if (all.dx == nullptr) return loss;
  const float whole = 1.0f / sum, scale = static_cast<float>(share * (own + even * static_cast<double>(all_weights)));
  const float hit = static_cast<float>(share * own), takes = slopes == nullptr ? 0.0f : slopes[C + label];
  const float dot = fmaf(-device_exp(of_label), takes, of_slopes) * whole, smoothing = static_cast<float>(share * even);
  for (uint32_t c = lane_index(); c < C; c += kWarpLanes) {
    const float slope = slopes == nullptr ? 0.0f : slopes[c] - (c == label ? takes : 0.0f);
    const float d = fmaf(device_exp(float{x[c]} - largest) * whole, scale + (slope - dot), -smoothing * all.weight(c));
    all.dx[row * C + c] = c == label ? d - hit : d;
  }
  return loss;
}

template <typename Stored>
__global__ void __launch_bounds__(kBlockThreads)
    judge_class_rows(const ClassLoss<Stored> all, const StepScalars* scalars) {
  REPRISE_SHARED(double, shared, kWarps);
  REPRISE_SHARED(uint64_t, counts, kWarps);
  const uint32_t C = all.in.C;
  const uint64_t first = uint64_t{blockIdx.x} * kClassRowsOfBlock, end = minimum(all.in.M, first + kClassRowsOfBlock);
  double loss = 0;
  uint64_t labelled = 0, correct = 0;
  for (uint64_t row = first + warp_index(); row < end; row += kWarps) {
    if (all.labels->has_fault != 0 || !all.in.is_labelled(row)) {
      for (uint32_t c = lane_index(); all.dx != nullptr && c < C; c += kWarpLanes) all.dx[row * C + c] = 0.0f;
      continue;
    }
    const double of_row = judge_row(all, row, scalars);
    const bool is_right =
        all.dx == nullptr && predicts(all, row, static_cast<uint32_t>(all.in.label(row)), all.rows[row].largest);
    if (lane_index() == 0) loss += of_row, ++labelled, correct += is_right;
  }
  loss = block_sum<kWarps>(shared, loss);
  labelled = block_sum<kWarps>(counts, labelled);
  correct = block_sum<kWarps>(counts, correct);
  if (threadIdx.x == 0) all.tallies[blockIdx.x] = {loss, labelled, correct};
}

template <typename Stored>
__global__ void __launch_bounds__(kBlockThreads) add_class_tallies(const ClassLoss<Stored> all, StepScalars* scalars) {
  REPRISE_SHARED(double, shared, kWarps);
  REPRISE_SHARED(uint64_t, counts, kWarps);
  double loss = 0, overlaps = 0;
  uint64_t labelled = 0, correct = 0;
  for (uint64_t i = threadIdx.x; i < all.blocks; i += kBlockThreads) {
    loss += all.tallies[i].loss;
    labelled += all.tallies[i].labelled;
    correct += all.tallies[i].correct;
  }
  for (uint64_t sample = threadIdx.x; all.slopes != nullptr && sample < all.in.N; sample += kBlockThreads)
    overlaps += all.overlaps[sample];
  loss = block_sum<kWarps>(shared, loss);
  overlaps = block_sum<kWarps>(shared, overlaps);
  labelled = block_sum<kWarps>(counts, labelled);
  correct = block_sum<kWarps>(counts, correct);
  if (threadIdx.x != 0 || labelled == 0) return;
  const double entropy = loss * (1.0 - static_cast<double>(all.in.loss.dice));
  const bool is_apart = all.dx == nullptr && all.in.weights != nullptr;
  loss = is_apart ? overlaps : loss * ((1.0 - static_cast<double>(all.in.loss.dice)) / all.divisor(scalars)) + overlaps;
  if (all.dx != nullptr) {
    if (!is_finite(loss)) scalars->skip = 1;
  } else {
    loss *= all.labels->labelled;
    if (is_apart) scalars->weighted_loss += entropy, scalars->step_weight += all.labels->weight;
    scalars->labelled += labelled;
    scalars->correct += correct;
  }
  scalars->loss_sum += loss;
}

template <typename Stored>
Status judge(const KernelContext& context, Stored* dx, const ClassLossInputOf<Stored>& in, StepScalars* scalars) {
  unsigned char* base = static_cast<unsigned char*>(in.scratch);
  const bool has_dice = in.loss.dice > 0;
  const CudaClassLossScratch layout = cuda_class_loss_scratch(in.M, in.N, in.C, has_dice);
  const ClassLoss<Stored> all = {in,
                                 dx,
                                 reinterpret_cast<LabelSums*>(base),
                                 reinterpret_cast<CudaLossTally*>(base + layout.tallies_at),
                                 reinterpret_cast<double*>(base + layout.overlaps_at),
                                 reinterpret_cast<RowExponentials*>(base + layout.rows_at),
                                 reinterpret_cast<double*>(base + layout.sums_at),
                                 has_dice ? reinterpret_cast<float*>(base + layout.slopes_at) : nullptr,
                                 layout.blocks,
                                 layout.parts};
  REPRISE_LAUNCH((count_class_labels<Stored>), 1, kBlockThreads, context.queue, all, context.scalars, context.row);
  REPRISE_RETURN_IF_ERROR(launch_status());
  REPRISE_LAUNCH((sum_class_rows<Stored>), static_cast<uint32_t>(parts(in.M, kWarps)), kBlockThreads, context.queue,
                 all);
  REPRISE_RETURN_IF_ERROR(launch_status());
  if (has_dice) {
    REPRISE_LAUNCH((sum_overlaps<Stored>), static_cast<uint32_t>(in.N * layout.parts), kBlockThreads, context.queue,
                   all);
    REPRISE_RETURN_IF_ERROR(launch_status());
    REPRISE_LAUNCH((settle_overlaps<Stored>), static_cast<uint32_t>(in.N), kBlockThreads, context.queue, all, scalars);
    REPRISE_RETURN_IF_ERROR(launch_status());
  }
  REPRISE_LAUNCH((judge_class_rows<Stored>), static_cast<uint32_t>(layout.blocks), kBlockThreads, context.queue, all,
                 scalars);
  REPRISE_RETURN_IF_ERROR(launch_status());
  REPRISE_LAUNCH((add_class_tallies<Stored>), 1, kBlockThreads, context.queue, all, scalars);
  return launch_status();
}

}  // namespace

template <typename Stored>
Status cuda_class_loss_backward(const KernelContext& context, const ClassLossBackwardArgsOf<Stored>& args) {
  return judge(context, args.dx, args.in, args.scalars);
}
template <typename Stored>
Status cuda_class_loss_evaluate(const KernelContext& context, const ClassLossEvaluateArgsOf<Stored>& args) {
  return judge(context, static_cast<Stored*>(nullptr), args.in, args.scalars);
}

REPRISE_CUDA_INSTANTIATE(cuda_class_loss_backward, ClassLossBackwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_class_loss_evaluate, ClassLossEvaluateArgs)

}  // namespace reprise
