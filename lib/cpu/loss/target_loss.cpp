// Losses of predicted numbers, and their derivatives, in one pass over rows. Sums are in double, in
// an order that depends on the shape alone.
#include <cmath>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/loss/loss_rules.h"
#include "lib/cpu/vector_math.h"

namespace reprise {
namespace {

struct Judged {
  float loss, slope;
};

struct Mse {
  static constexpr bool kCounts = false;
  REPRISE_INLINE static Judged of(float x, float t, float, float) {
    const float d = x - t;
    return {d * d, 2.0f * d};
  }
};
struct L1 {
  static constexpr bool kCounts = false;
  REPRISE_INLINE static Judged of(float x, float t, float, float) {
    const float d = x - t, below = d < 0.0f ? -1.0f : 0.0f;
    return {d < 0.0f ? -d : d, d > 0.0f ? 1.0f : below + d * 0.0f};  // NaN stays NaN
  }
};
struct Huber {
  static constexpr bool kCounts = false;
  REPRISE_INLINE static Judged of(float x, float t, float delta, float) {
    const float d = x - t, distance = d < 0.0f ? -d : d, limit = d < 0.0f ? -delta : delta;
    return {distance > delta ? delta * (distance - 0.5f * delta) : 0.5f * d * d, distance > delta ? limit : d};
  }
};
// Binary cross-entropy of the logit x. With the sigmoid s and e = e^-|x|, log s(-|x|) = -|x| -
// log(1 + e). Sums of two products are computed in double, where each product is exact.
struct Binary {
  static constexpr bool kCounts = true;
  REPRISE_INLINE static Judged of(float x, float t, float, float weight) {
    const float e = vector_exp_at_most_88(x < 0.0f ? x : -x), more = vector_log_one_plus(e);
    const float larger = 1.0f / (1.0f + e), smaller = e * larger;
    const double positive = static_cast<double>(weight * t), negative = static_cast<double>(1.0f - t);
    const double loss = positive * static_cast<double>((x < 0.0f ? -x : 0.0f) + more) +
                        negative * static_cast<double>((x < 0.0f ? 0.0f : x) + more);
    const double slope = negative * static_cast<double>(x < 0.0f ? smaller : larger) -
                         positive * static_cast<double>(x < 0.0f ? larger : smaller);
    return {static_cast<float>(loss), static_cast<float>(slope)};
  }
};

// A run of contiguous numbers with their targets. If there are weights, a run is one row, because
// all rows have the same weights.
template <typename Stored>
struct Run {
  Stored* dx;  // null in evaluation
  const Stored* x;
  const float* targets;
  const float* weights;  // null for none
  uint64_t n;
  float delta, share;  // share: factor of the derivatives
};

constexpr uint32_t kSums = 16;  // element i of a run is added to sum i % kSums
struct Sums {
  double loss[kSums] = {};
  uint64_t labelled[kSums] = {}, correct[kSums] = {};
};

// Adds the loss of number i to the sums of `lane`, and writes its derivative. Template parameters
// say whether there are derivatives and weights, because loops with such conditions would not
// vectorise.
template <typename Function, bool kSlopes, bool kWeights, typename Stored>
REPRISE_INLINE void judge_one(const Run<Stored>& run, uint64_t i, uint32_t lane, Sums& sums) {
  const float t = run.targets[i], x = run.x[i];
  const bool there = t == t;
  float weight = 1.0f;
  if constexpr (kWeights) weight = run.weights[i];
  const Judged judged = Function::of(x, there ? t : 0.0f, run.delta, weight);
  const float loss = there ? judged.loss : 0.0f, slope = judged.slope * run.share;
  sums.loss[lane] += static_cast<double>(loss);
  sums.labelled[lane] += there;
  if constexpr (Function::kCounts) sums.correct[lane] += there & ((x > 0.0f) == (t > 0.5f));
  if constexpr (kSlopes) run.dx[i] = there ? slope : 0.0f;
}
template <typename Function, bool kSlopes, bool kWeights, typename Stored>
REPRISE_INLINE void judge_with(const Run<Stored>& given, Sums& sums) {
  const Run<Stored> run = given;
  uint64_t i = 0;
  for (; i + kSums <= run.n; i += kSums) {
    REPRISE_INDEPENDENT
    for (uint32_t k = 0; k < kSums; ++k) judge_one<Function, kSlopes, kWeights>(run, i + k, k, sums);
  }
  for (uint32_t k = 0; i + k < run.n; ++k) judge_one<Function, kSlopes, kWeights>(run, i + k, k, sums);
}
template <typename Function, typename Stored>
REPRISE_INLINE void judge_run_body(Function, const Run<Stored>& run, Sums& sums) {
  if (run.dx == nullptr)
    return run.weights == nullptr ? judge_with<Function, false, false>(run, sums)
                                  : judge_with<Function, false, true>(run, sums);
  return run.weights == nullptr ? judge_with<Function, true, false>(run, sums)
                                : judge_with<Function, true, true>(run, sums);
}
REPRISE_LEVELS_OF(REPRISE_LISTED(template <typename Function, typename Stored>), judge_run, judge_run_body,
                  (Function with, const Run<Stored>& run, Sums& sums), (with, run, sums))

LossTally total_of(Sums& sums) {
  for (uint32_t width = kSums / 2; width > 0; width /= 2) {
    for (uint32_t k = 0; k < width; ++k) {
      sums.loss[k] += sums.loss[k + width], sums.labelled[k] += sums.labelled[k + width],
          sums.correct[k] += sums.correct[k + width];
    }
  }
  return {sums.loss[0], sums.labelled[0], sums.correct[0]};
}

template <typename Function, typename Stored>
LossTally judge_rows(const KernelContext& context, Stored* dx, const TargetLossInputOf<Stored>& in, uint64_t begin,
                     uint64_t end, float share) {
  Sums sums;
  const uint64_t C = in.C, rows_at_once = in.positive_weights == nullptr ? end - begin : 1;
  for (uint64_t row = begin; row < end; row += rows_at_once) {
    const uint64_t first = row * C;
    judge_run(cpu_machine(context).level, Function{},
              Run<Stored>{dx == nullptr ? nullptr : dx + first, in.x + first, in.targets + first, in.positive_weights,
                          rows_at_once * C, in.loss.delta, share},
              sums);
  }
  return total_of(sums);
}

template <typename Function, typename Stored>
LossTally judge_all(const KernelContext& context, Stored* dx, const TargetLossInputOf<Stored>& in, float share) {
  LossTally* tallies = static_cast<LossTally*>(in.scratch);
  const Partition pieces = split_rows(in.M, in.C);
  parallel_for(*context.workers, pieces.count(), [&](uint32_t i) {
    tallies[i] = judge_rows<Function>(context, dx, in, pieces.begin(i), pieces.end(i), share);
  });
  LossTally all{};
  for (uint32_t i = 0; i < pieces.count(); ++i)
    all.loss += tallies[i].loss, all.labelled += tallies[i].labelled, all.correct += tallies[i].correct;
  return all;
}

// Returns losses and counts. Writes derivatives to `dx` unless it is null.
template <typename Stored>
LossTally judge(const KernelContext& context, Stored* dx, const TargetLossInputOf<Stored>& in, float share) {
  switch (static_cast<TargetLossKind>(in.loss.kind)) {
    case TargetLossKind::kMse: return judge_all<Mse>(context, dx, in, share);
    case TargetLossKind::kL1: return judge_all<L1>(context, dx, in, share);
    case TargetLossKind::kHuber: return judge_all<Huber>(context, dx, in, share);
    case TargetLossKind::kBinary: break;
  }
  return judge_all<Binary>(context, dx, in, share);
}

}  // namespace

template <typename Stored>
Status cpu_target_loss_backward(const KernelContext& context, const TargetLossBackwardArgsOf<Stored>& args) {
  StepScalars& scalars = *args.scalars;
  const double step = static_cast<double>(scalars.step_labelled);
  const LossTally all = judge(context, args.dx, args.in, static_cast<float>(1.0 / step));
  const double loss = all.labelled == 0 ? 0 : all.loss / step;
  if (!std::isfinite(loss)) scalars.skip = 1;
  scalars.loss_sum += loss;
  return ok_status();
}

template <typename Stored>
Status cpu_target_loss_evaluate(const KernelContext& context, const TargetLossEvaluateArgsOf<Stored>& args) {
  const LossTally all = judge(context, static_cast<Stored*>(nullptr), args.in, 0.0f);
  args.scalars->loss_sum += all.loss;
  args.scalars->labelled += all.labelled;
  args.scalars->correct += all.correct;
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_target_loss_backward, TargetLossBackwardArgs)
REPRISE_INSTANTIATE(cpu_target_loss_evaluate, TargetLossEvaluateArgs)

}  // namespace reprise
