// Losses on pairs of answers: the answers' log-probabilities, the pairs' losses, and a weight for
// each row. The counterpart of lib/cpu/loss/preference.cpp. One block computes everything, and a
// warp processes a pair. This suffices, because one number for each row is little work compared to
// the products of the loss head. The warps' sums are added in the order of the warps.
#include "cuda/cuda_kernels.h"
#include "cuda/data_fault.h"
#include "cuda/device_math.h"
#include "cuda/reduce.h"
#include "lib/preference_loss.h"

namespace reprise {
namespace {

constexpr uint32_t kBlock = 256, kWarps = kBlock / kWarpLanes;

// Returns e^x - 1 for |x| <= 0.35, within a few ulp, because the fifteenth term of the series is
// below 2^-60 of the first.
__device__ inline double expm1_near_zero(double x) {
  double sum = 1;
  REPRISE_UNROLL
  for (int k = 14; k >= 2; --k) sum = fma(sum, x * (1.0 / k), 1.0);
  return x * sum;
}

// Functions in f64, within a few ulp. They are not in device_math.h, because no other file needs
// them.
struct DeviceMath {
  // Returns e^x; e^709 above 709, and 0 below -708, because e^x is denormal there. NaN stays NaN.
  __device__ static double exp(double x) {
    constexpr double kRound = 0x1.8p52;  // as in device_exp()
    const double clamped = x > 709 ? 709 : (x < -708 ? -708 : x);
    const double shifted = fma(clamped, 0x1.71547652b82fep+0, kRound), n = shifted - kRound;
    const double r = fma(-n, 0x1.abc9e3b39803fp-56, fma(-n, 0x1.62e42fefa39efp-1, clamped));
    const uint64_t exponent = std::bit_cast<uint64_t>(shifted) - std::bit_cast<uint64_t>(kRound) + 1023u;
    const double power = (1 + expm1_near_zero(r)) * std::bit_cast<double>(exponent << 52);
    return x < -708 ? 0 : power;
  }
  __device__ static double expm1(double x) { return x > -0.35 && x < 0.35 ? expm1_near_zero(x) : exp(x) - 1; }
  __device__ static double log(double x) { return x > 0 ? device_log(x) : -__builtin_inf(); }
  // Returns log(1 + x) for x > -1, after Kahan.
  __device__ static double log1p(double x) {
    const double sum = 1 + x;
    return sum == 1 ? x : device_log(sum) * (x / (sum - 1));
  }
};

struct Pairs {
  const double* losses;     // [M]
  const JudgedPair* pairs;  // [P]
  uint64_t M;
  uint32_t P;
  PreferenceAttribute preference;

  __device__ bool is(PreferenceKind kind) const { return preference.kind == static_cast<uint32_t>(kind); }
  // Returns the sum of the losses of rows [first, end), to every lane.
  __device__ double sum(double first, double end) const {
    double sum = 0;
    for (auto row = static_cast<uint64_t>(first) + lane_index(); row < static_cast<uint64_t>(end); row += kWarpLanes)
      sum += losses[row];
    return warp_sum(sum);
  }
  __device__ double log_probability(const JudgedPair& pair, uint32_t answer) const {
    return -sum(pair.first[answer], pair.end[answer]);
  }
};

// Sums over the pairs that one warp has processed. join() adds the sums of all warps and returns
// the result to every thread.
struct Totals {
  double loss = 0, token_loss = 0, rewards[2] = {};
  uint64_t judged[2] = {}, pairs = 0, correct = 0;
};

template <typename Doubles, typename Counts>
__device__ Totals join(Doubles& doubles, Counts& counts, Totals own) {
  if (lane_index() != 0) own = Totals{};  // all lanes of a warp have the same totals; only those of lane 0 count
  own.loss = block_sum<kWarps>(doubles, own.loss);
  own.token_loss = block_sum<kWarps>(doubles, own.token_loss);
  own.pairs = block_sum<kWarps>(counts, own.pairs);
  own.correct = block_sum<kWarps>(counts, own.correct);
  for (uint32_t i = 0; i < 2; ++i) {
    own.rewards[i] = block_sum<kWarps>(doubles, own.rewards[i]);
    own.judged[i] = block_sum<kWarps>(counts, own.judged[i]);
  }
  return own;
}

// True if the rows of every pair exist; all threads get the same result. Otherwise records a fault
// in `noted`, unless `noted` is null, for the first pair with missing rows.
template <typename Shared>
__device__ bool has_rows(Shared& shared, const Pairs& pairs, StepScalars* noted, uint32_t row) {
  uint64_t first = kNoFault;
  for (uint32_t p = threadIdx.x; p < pairs.P && first == kNoFault; p += kBlock) {
    if (!has_its_rows(pairs.pairs[p], pairs.M)) first = p;
  }
  first = block_min<kWarps>(shared, first);
  if (first != kNoFault && threadIdx.x == 0) note_fault(noted, DataFault::kPair, row, first);
  return first == kNoFault;
}

// Returns the number z of the loss kKto (lib/ops/preference.h) to every thread.
template <typename Shared>
__device__ double distance_from_reference(Shared& shared, const Pairs& pairs) {
  double sum = 0, count = 0;
  for (uint32_t p = warp_index(); p < pairs.P; p += kWarps) {
    const JudgedPair& pair = pairs.pairs[p];
    if (pair.end[1] <= pair.first[1]) continue;
    sum += pairs.log_probability(pair, 1) - pair.reference[1];
    count += 1;
  }
  sum = block_sum<kWarps>(shared, lane_index() == 0 ? sum : 0.0);
  count = block_sum<kWarps>(shared, lane_index() == 0 ? count : 0.0);
  return count > 0 && sum > 0 ? sum / count : 0;
}

__device__ void add(Totals& totals, const Pairs& pairs, const JudgedPair& pair, const PairLoss& loss) {
  ++totals.pairs;
  totals.loss += loss.loss;
  totals.correct += loss.is_right ? 1 : 0;
  if (pairs.is(PreferenceKind::kOrpo)) totals.token_loss += pairs.sum(pair.whole, pair.end[0]);
  const bool is_single = pairs.is(PreferenceKind::kKto), is_other = is_single && pair.wish < 0;
  totals.rewards[0] += is_other ? 0 : loss.reward[0];  // without a variable index, arrays stay in registers
  totals.rewards[1] += is_other ? loss.reward[0] : loss.reward[1];
  totals.judged[0] += is_other ? 0 : 1;
  totals.judged[1] += is_single && !is_other ? 0 : 1;
}

// Calls visit(totals, index, pair, log-probabilities, loss) for each pair with wish != 0, in every
// lane of the pair's warp. visit() may add to the warp's totals. Returns the totals of all pairs to
// every thread.
template <typename Doubles, typename Counts, typename Visit>
__device__ Totals judge(Doubles& doubles, Counts& counts, const Pairs& pairs, const Visit& visit) {
  const double distance = pairs.is(PreferenceKind::kKto) ? distance_from_reference(doubles, pairs) : 0;
  Totals totals;
  for (uint32_t p = warp_index(); p < pairs.P; p += kWarps) {
    const JudgedPair& pair = pairs.pairs[p];
    if (pair.wish == 0) continue;
    const double l[2] = {pairs.log_probability(pair, 0), pairs.log_probability(pair, 1)};
    const PairLoss loss = judge_pair<DeviceMath>(pairs.preference, pair, l, distance);
    add(totals, pairs, pair, loss);
    visit(totals, p, pair, l, loss);
  }
  return join(doubles, counts, totals);
}

__device__ void add_to(StepScalars* scalars, const Totals& totals) {
  scalars->correct += totals.correct;
  for (uint32_t i = 0; i < 2; ++i) scalars->rewards[i] += totals.rewards[i], scalars->judged[i] += totals.judged[i];
}

__device__ void set_weights(float* weights, double first, double end, double weight) {
  for (auto row = static_cast<uint64_t>(first) + lane_index(); row < static_cast<uint64_t>(end); row += kWarpLanes) {
    weights[row] = static_cast<float>(weight);
  }
}

// Computes losses and weights as one block, which may use all registers.
__global__ void __launch_bounds__(kBlock, 1)
    judge_for_training(float* weights, StepScalars* scalars, StepScalars* noted, uint32_t row, const Pairs pairs) {
  REPRISE_SHARED(double, doubles, kWarps);
  REPRISE_SHARED(uint64_t, counts, kWarps);
  for (uint64_t m = threadIdx.x; m < pairs.M; m += kBlock) weights[m] = 0;
  if (!has_rows(counts, pairs, noted, row)) return;  // the barriers of has_rows() order the zeros before the weights
  const auto step_pairs = static_cast<double>(scalars->step_labelled);
  const double of_token = pairs.is(PreferenceKind::kOrpo) ? 1 / scalars->step_weight : 0;
  const Totals totals = judge(doubles, counts, pairs,
                              [&](Totals&, uint32_t, const JudgedPair& pair, const double(&)[2], const PairLoss& loss) {
                                set_weights(weights, pair.whole, pair.first[0], of_token);
                                set_weights(weights, pair.first[0], pair.end[0], of_token - loss.slope[0] / step_pairs);
                                set_weights(weights, pair.first[1], pair.end[1], -loss.slope[1] / step_pairs);
                              });
  if (threadIdx.x != 0 || totals.pairs == 0) return;
  const double loss = totals.loss / step_pairs + totals.token_loss * of_token;
  scalars->loss_sum += loss;
  add_to(scalars, totals);
  if (!is_finite(loss)) scalars->skip = 1;
}

__global__ void __launch_bounds__(kBlock, 1) judge_for_evaluation(double* log_probabilities, StepScalars* scalars,
                                                                  StepScalars* noted, uint32_t row, const Pairs pairs) {
  REPRISE_SHARED(double, doubles, kWarps);
  REPRISE_SHARED(uint64_t, counts, kWarps);
  for (uint64_t i = threadIdx.x; i < uint64_t{pairs.P} * 2; i += kBlock) log_probabilities[i] = 0;
  if (!has_rows(counts, pairs, noted, row)) return;
  const Totals totals =
      judge(doubles, counts, pairs,
            [&](Totals& own, uint32_t p, const JudgedPair& pair, const double(&l)[2], const PairLoss&) {
              if (pairs.is(PreferenceKind::kOrpo))
                own.loss += pairs.sum(pair.whole, pair.end[0]) / (pair.end[0] - pair.whole);
              if (lane_index() < 2) log_probabilities[uint64_t{p} * 2 + lane_index()] = lane_index() == 0 ? l[0] : l[1];
            });
  if (threadIdx.x != 0) return;
  scalars->loss_sum += totals.loss;
  scalars->labelled += totals.pairs;
  add_to(scalars, totals);
}

template <typename Args>
Pairs pairs_of(const Args& args) {
  return {args.losses, args.pairs, args.M, args.P, args.preference};
}

}  // namespace

Status cuda_preference_backward(const KernelContext& context, const PreferenceBackwardArgs& args) {
  REPRISE_LAUNCH(judge_for_training, 1, kBlock, context.queue, args.weights, args.scalars, context.scalars, context.row,
                 pairs_of(args));
  return launch_status();
}

Status cuda_preference_evaluate(const KernelContext& context, const PreferenceEvaluateArgs& args) {
  REPRISE_LAUNCH(judge_for_evaluation, 1, kBlock, context.queue, args.log_probabilities, args.scalars, context.scalars,
                 context.row, pairs_of(args));
  return launch_status();
}

}  // namespace reprise
