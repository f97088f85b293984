// Losses on pairs of answers: log-probabilities of answers, their loss, and a weight for each row.
// Runs after the loss head's forward, which computes each row's loss, and before its backward,
// which needs the weights. Adds one number for each row, in order and on one thread: the time is
// small, because the head's products take much longer.
#include <cmath>
#include <cstring>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/data_fault.h"
#include "lib/portable_math.h"
#include "lib/preference_loss.h"

namespace reprise {
namespace {

struct PortableMath {
  static double exp(double x) { return portable_exp(x); }
  static double expm1(double x) { return portable_expm1(x); }
  static double log(double x) { return portable_log(x); }
  static double log1p(double x) { return portable_log1p(x); }
};

// Calls judge_pair() without inlining, so that no product in it is fused with a sum outside.
[[gnu::noinline]] PairLoss judge_one(const PreferenceAttribute& a, const JudgedPair& pair, const double (&l)[2],
                                     double distance) {
  return judge_pair<PortableMath>(a, pair, l, distance);
}

double sum_of(const double* losses, double first, double end) {
  double sum = 0;
  for (auto row = static_cast<uint64_t>(first); row < static_cast<uint64_t>(end); ++row) sum += losses[row];
  return sum;
}
double log_probability(const double* losses, const JudgedPair& pair, uint32_t answer) {
  return -sum_of(losses, pair.first[answer], pair.end[answer]);
}

// All pairs of one call, and the sums over them.
class Judge {
 public:
  template <typename Args>
  explicit Judge(const Args& args)
      : losses_(args.losses), pairs_(args.pairs), P_(args.P), M_(args.M), preference_(args.preference) {}

  // `loss`: sum of the losses of pairs. `token_loss`: for kOrpo, sum of the losses of the rows of
  // complete conversations.
  double loss = 0, token_loss = 0;
  double rewards[2] = {};
  uint64_t judged[2] = {}, pairs = 0, correct = 0;

  bool is_orpo() const { return preference_.kind == static_cast<uint32_t>(PreferenceKind::kOrpo); }
  bool is_kto() const { return preference_.kind == static_cast<uint32_t>(PreferenceKind::kKto); }

  // True if the micro-batch has the rows of all pairs; otherwise notes the first pair without its
  // rows as a fault.
  bool has_rows(const KernelContext& context) const {
    for (uint32_t p = 0; p < P_; ++p) {
      if (has_its_rows(pairs_[p], M_)) continue;
      note_fault(context, DataFault::kPair, p);
      return false;
    }
    return true;
  }

  // Calls visit(index, pair, log-probabilities of the pair's two answers, loss) for each judged
  // pair.
  template <typename Visit>
  void judge(const Visit& visit) {
    const double distance = is_kto() ? distance_from_reference() : 0;
    for (uint32_t p = 0; p < P_; ++p) {
      const JudgedPair& pair = pairs_[p];
      if (pair.wish == 0) continue;
      const double l[2] = {log_probability(losses_, pair, 0), log_probability(losses_, pair, 1)};
      const PairLoss judged_pair = judge_one(preference_, pair, l, distance);
      add(pair, judged_pair);
      visit(p, pair, l, judged_pair);
    }
  }

 private:
  double distance_from_reference() const {
    double sum = 0, count = 0;
    for (uint32_t p = 0; p < P_; ++p) {
      if (pairs_[p].end[1] <= pairs_[p].first[1]) continue;
      sum += log_probability(losses_, pairs_[p], 1) - pairs_[p].reference[1];
      count += 1;
    }
    return count > 0 && sum > 0 ? sum / count : 0;
  }

  void add(const JudgedPair& pair, const PairLoss& judged_pair) {
    ++pairs;
    loss += judged_pair.loss;
    correct += judged_pair.is_right;
    if (is_orpo()) token_loss += sum_of(losses_, pair.whole, pair.end[0]);
    for (uint32_t i = 0; i < (is_kto() ? 1 : 2); ++i) {
      const uint32_t side = is_kto() ? pair.wish < 0 : i;
      rewards[side] += judged_pair.reward[i];
      ++judged[side];
    }
  }

  const double* losses_;
  const JudgedPair* pairs_;
  uint32_t P_;
  uint64_t M_;
  PreferenceAttribute preference_;
};

void add_rewards(const Judge& judge, StepScalars& scalars) {
  for (uint32_t i = 0; i < 2; ++i) scalars.rewards[i] += judge.rewards[i], scalars.judged[i] += judge.judged[i];
}

void set_weights(float* weights, double first, double end, double weight) {
  for (auto row = static_cast<uint64_t>(first); row < static_cast<uint64_t>(end); ++row)
    weights[row] = static_cast<float>(weight);
}

}  // namespace

Status cpu_preference_backward(const KernelContext& context, const PreferenceBackwardArgs& args) {
  Judge judge(args);
  StepScalars& scalars = *args.scalars;
  std::memset(args.weights, 0, args.M * sizeof(float));
  if (!judge.has_rows(context)) return ok_status();
  const auto pairs = static_cast<double>(scalars.step_labelled);
  const double of_token = judge.is_orpo() ? 1 / scalars.step_weight : 0;
  judge.judge([&](uint32_t, const JudgedPair& pair, const double (&)[2], const PairLoss& of_pair) {
    set_weights(args.weights, pair.whole, pair.first[0], of_token);
    set_weights(args.weights, pair.first[0], pair.end[0], of_token - of_pair.slope[0] / pairs);
    set_weights(args.weights, pair.first[1], pair.end[1], -of_pair.slope[1] / pairs);
  });
  const double loss = judge.pairs == 0 ? 0 : judge.loss / pairs + judge.token_loss * of_token;
  scalars.loss_sum += loss;
  scalars.correct += judge.correct;
  add_rewards(judge, scalars);
  if (!std::isfinite(loss)) scalars.skip = 1;
  return ok_status();
}

Status cpu_preference_evaluate(const KernelContext& context, const PreferenceEvaluateArgs& args) {
  Judge judge(args);
  StepScalars& scalars = *args.scalars;
  std::memset(args.log_probabilities, 0, uint64_t{args.P} * 2 * sizeof(double));
  if (!judge.has_rows(context)) return ok_status();
  double token_loss = 0;
  judge.judge([&](uint32_t p, const JudgedPair& pair, const double (&l)[2], const PairLoss&) {
    for (uint32_t i = 0; i < 2; ++i) args.log_probabilities[uint64_t{p} * 2 + i] = l[i];
    if (judge.is_orpo()) token_loss += sum_of(args.losses, pair.whole, pair.end[0]) / (pair.end[0] - pair.whole);
  });
  scalars.loss_sum += judge.loss + token_loss;
  scalars.labelled += judge.pairs;
  scalars.correct += judge.correct;
  add_rewards(judge, scalars);
  return ok_status();
}

}  // namespace reprise
