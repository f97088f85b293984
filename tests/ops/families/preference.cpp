// Losses of pairs of answers: cases, data, reference and gradient check. The reference follows the
// papers, with the C library's exp and log.
#include <algorithm>
#include <cmath>

#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/op_family.h"

namespace reprise::test {
namespace {

using namespace ref;

using Backward = PreferenceBackward;
using Evaluate = PreferenceEvaluate;

constexpr PreferenceKind kDpo = PreferenceKind::kDpo, kOrpo = PreferenceKind::kOrpo, kKto = PreferenceKind::kKto;

// ---- the reference ----

struct ReferencePair {
  double wish, whole, first[2], end[2], reference[2];
  bool has(size_t i) const { return end[i] > first[i]; }
};
std::vector<ReferencePair> pairs_of(const Array& numbers) {
  std::vector<ReferencePair> pairs;
  const auto all = view<2>(numbers);
  for (size_t p = 0; p < all.shape(0); ++p) {
    pairs.push_back({all(p, 0), all(p, 1), {all(p, 2), all(p, 3)}, {all(p, 4), all(p, 5)}, {all(p, 6), all(p, 7)}});
  }
  return pairs;
}

double sum_of_rows(const Array& losses, double first, double end) {
  double sum = 0;
  for (double row = first; row < end; ++row) sum += losses.flat(static_cast<size_t>(row));
  return sum;
}
double log_sigmoid(double x) { return -std::log(1 + std::exp(-x)); }
double log_odds(double log_p) { return std::log(std::exp(log_p) / (1 - std::exp(log_p))); }

struct Judged {
  // `loss`: sum over pairs. `tokens`: sum of the losses of the rows of each pair's prompt and first
  // answer, used by ORPO. `mean_of_tokens`: for each pair the mean of these losses, summed over
  // pairs.
  double loss = 0, tokens = 0, mean_of_tokens = 0;
  double rewards[2] = {};
  uint64_t judged[2] = {}, pairs = 0, correct = 0;
  double margin = INFINITY;  // smallest absolute value of the differences whose signs decide `correct`
};

// Returns KTO's estimate of the distance between policy and reference, which kKto treats as a
// constant. It is the mean, over the answers to other prompts (first[1]), of the log-ratio of
// policy and reference. It is 0 if there are no such answers, or if the mean is negative.
double distance_of(const Array& losses, const std::vector<ReferencePair>& pairs) {
  double sum = 0, count = 0;
  for (const ReferencePair& pair : pairs) {
    if (!pair.has(1)) continue;
    sum += -sum_of_rows(losses, pair.first[1], pair.end[1]) - pair.reference[1];
    count += 1;
  }
  return count == 0 ? 0 : std::max(0.0, sum / count);
}

Judged judge(const PreferenceAttribute& a, const Array& losses, const std::vector<ReferencePair>& pairs,
             double distance) {
  Judged out;
  const auto kind = static_cast<PreferenceKind>(a.kind);
  for (const ReferencePair& pair : pairs) {
    if (pair.wish == 0) continue;
    out.pairs += 1;
    double l[2], reward[2] = {};
    for (size_t i = 0; i < 2; ++i) l[i] = -sum_of_rows(losses, pair.first[i], pair.end[i]);
    if (kind == kKto) {
      const double r = a.beta * (l[0] - pair.reference[0]), z = a.beta * distance;
      const double weight = pair.wish > 0 ? a.desirable_weight : a.undesirable_weight,
                   gain = pair.wish > 0 ? r - z : z - r;
      out.loss += weight * (1 - std::exp(log_sigmoid(gain)));
      out.rewards[pair.wish > 0 ? 0 : 1] += r;
      out.judged[pair.wish > 0 ? 0 : 1] += 1;
      out.correct += gain > 0;
      out.margin = std::min(out.margin, std::abs(gain));
      continue;
    }
    for (size_t i = 0; i < 2; ++i)
      reward[i] = a.beta * (kind == kOrpo ? l[i] / (pair.end[i] - pair.first[i]) : l[i] - pair.reference[i]);
    if (kind == kDpo) {
      const double d = reward[0] - reward[1];
      out.loss += -(1 - a.label_smoothing) * log_sigmoid(d) - a.label_smoothing * log_sigmoid(-d);
    } else {
      out.loss += -a.beta * log_sigmoid(log_odds(reward[0] / a.beta) - log_odds(reward[1] / a.beta));
      const double tokens = sum_of_rows(losses, pair.whole, pair.end[0]);
      out.tokens += tokens;
      out.mean_of_tokens += tokens / (pair.end[0] - pair.whole);
    }
    for (size_t i = 0; i < 2; ++i) out.rewards[i] += reward[i], out.judged[i] += 1;
    out.correct += reward[0] > reward[1];
    out.margin = std::min(out.margin, std::abs(reward[0] - reward[1]));
  }
  return out;
}

// Returns the loss of a step, divided by the step's counts as in training.
double step_loss(const PreferenceAttribute& a, const Array& losses, const std::vector<ReferencePair>& pairs,
                 double distance, const StepScalars& scalars) {
  const Judged all = judge(a, losses, pairs, distance);
  const double tokens = static_cast<PreferenceKind>(a.kind) == kOrpo ? all.tokens / scalars.step_weight : 0;
  return all.loss / static_cast<double>(scalars.step_labelled) + tokens;
}

// Returns for each row the derivative of the step's loss with respect to the row's loss. The step's
// loss depends on an answer's rows only through their sum, so all rows of an answer have equal
// derivatives.
Array weights_of(const PreferenceAttribute& a, const Array& losses, const std::vector<ReferencePair>& pairs,
                 double distance, const StepScalars& scalars) {
  Array weights = zeros_like(losses);
  const auto n = static_cast<double>(scalars.step_labelled);
  const auto kind = static_cast<PreferenceKind>(a.kind);
  const auto add = [&](double first, double end, double weight) {
    for (double row = first; row < end; ++row) weights.flat(static_cast<size_t>(row)) += weight;
  };
  for (const ReferencePair& pair : pairs) {
    if (pair.wish == 0) continue;
    double l[2];
    for (size_t i = 0; i < 2; ++i) l[i] = -sum_of_rows(losses, pair.first[i], pair.end[i]);
    if (kind == kDpo) {
      const double d = a.beta * ((l[0] - pair.reference[0]) - (l[1] - pair.reference[1])), s = std::exp(log_sigmoid(d));
      const double by_d = -(1 - a.label_smoothing) * (1 - s) + a.label_smoothing * s;
      add(pair.first[0], pair.end[0], -a.beta * by_d / n);
      add(pair.first[1], pair.end[1], a.beta * by_d / n);
    } else if (kind == kOrpo) {
      double mean[2], rows[2];
      for (size_t i = 0; i < 2; ++i) rows[i] = pair.end[i] - pair.first[i], mean[i] = l[i] / rows[i];
      const double by_d = -a.beta * (1 - std::exp(log_sigmoid(log_odds(mean[0]) - log_odds(mean[1]))));
      for (size_t i = 0; i < 2; ++i)
        add(pair.first[i], pair.end[i], (i == 0 ? -1 : 1) * by_d / (1 - std::exp(mean[i])) / rows[i] / n);
      add(pair.whole, pair.end[0], 1 / scalars.step_weight);
    } else {
      const double gain = pair.wish * a.beta * (l[0] - pair.reference[0] - distance), s = std::exp(log_sigmoid(gain));
      const double weight = pair.wish > 0 ? a.desirable_weight : a.undesirable_weight;
      add(pair.first[0], pair.end[0], weight * s * (1 - s) * a.beta * pair.wish / n);
    }
  }
  return weights;
}

// ---- cases ----

// Returns the number of rows for P pairs. Each first answer has `rows` labels, each second answer
// has rows + 1, and each prompt has 2. Unused rows are between prompts and answers.
uint32_t rows_of_case(uint32_t P, uint32_t rows) { return P * (2 * rows + 8) + 3; }

void add_pairs(CaseTable& table, const PreferenceAttribute& attribute, uint32_t P, uint32_t rows, CaseValues data,
               const std::string& name, uint32_t others = 0) {
  const uint32_t M = rows_of_case(P, rows);
  const auto losses = shaped({M}, DType::kF64), pairs = shaped({P, JudgedPair::kNumbers}, DType::kF64),
             s = scalars_tensor();
  const std::string tag = name + "_p" + str(P) + "_m" + str(M);
  const auto set = [&](KernelCase& c) { c.data = data, c.other_labels = others; };
  set(table.add<Backward>(tag,
                          {{Backward::kWeights, shaped({M})},
                           {Backward::kScalars, s},
                           {Backward::kLosses, losses},
                           {Backward::kPairs, pairs}},
                          attribute));
  set(table.add<Evaluate>(tag,
                          {{Evaluate::kLogProbabilities, shaped({P, 2}, DType::kF64)},
                           {Evaluate::kScalars, s},
                           {Evaluate::kLosses, losses},
                           {Evaluate::kPairs, pairs}},
                          attribute));
}

PreferenceAttribute attribute_of(PreferenceKind kind, double beta, double label_smoothing = 0, double desirable = 1,
                                 double undesirable = 1) {
  return {static_cast<uint32_t>(kind), beta, label_smoothing, desirable, undesirable};
}

void add_cases(CaseTable& table) {
  if (table.is_bench()) return;
  const std::pair<const char*, PreferenceAttribute> attributes[] = {{"dpo", attribute_of(kDpo, 0.1)},
                                                                    {"dpo_smoothed", attribute_of(kDpo, 0.5, 0.25)},
                                                                    {"orpo", attribute_of(kOrpo, 0.2)},
                                                                    {"kto", attribute_of(kKto, 0.1)},
                                                                    {"kto_weighted",
                                                                     attribute_of(kKto, 0.3, 0, 1.5, 0.5)}};
  for (const auto& [name, attribute] : attributes) {
    add_pairs(table, attribute, 1, 1, CaseValues::kPlain, name);
    add_pairs(table, attribute, 3, 5, CaseValues::kPlain, name, 4);
    add_pairs(table, attribute, 19, 40, CaseValues::kPlain, name);
    add_pairs(table, attribute, 2, 9, CaseValues::kLarge, std::string(name) + "_large");
    add_pairs(table, attribute, 5, 3, CaseValues::kBadHigh, std::string(name) + "_bad_high");
    add_pairs(table, attribute, 3, 3, CaseValues::kBadLow, std::string(name) + "_bad_low");
    add_pairs(table, attribute, 3, 3, CaseValues::kNaN, std::string(name) + "_nan");
  }
}

// ---- data ----

template <typename K>
void fit(CaseDraft& draft) {
  const KernelCase& c = draft.c;
  const bool is_kto = static_cast<PreferenceKind>(c.as<PreferenceAttribute>().kind) == kKto,
             is_large = c.data == CaseValues::kLarge;
  for (double& loss : draft.value(K::kLosses)) loss = as_f32(is_large ? 5 * (loss + 1.5) : 1.5 * (loss + 1.01));
  auto pairs = view<2>(draft.value(K::kPairs));
  draft.value(K::kPairs).fill(0.0);
  const size_t P = pairs.shape(0);
  const double rows = (static_cast<double>(draft.value(K::kLosses).size()) - 3) / static_cast<double>(P) / 2 - 4;
  double at = 1;
  for (size_t p = 0; p < P; ++p) {
    if (P > 4 && p == 2) continue;  // entry 2 has no pair
    pairs(p, 0) = is_kto && draft.random.below(2) == 0 ? -1 : 1;
    pairs(p, 1) = at;
    for (uint32_t i = 0; i < 2; ++i) {
      if (is_kto && i == 1 && p == 1) continue;  // the pair has no answer to another prompt
      pairs(p, 2 + i) = at + 2;
      pairs(p, 4 + i) = at + 2 + rows + i;
      // The range of the reference is chosen so that KTO's distance is positive in some cases and 0
      // in others.
      pairs(p, 6 + i) = as_f32(-sum_of_rows(draft.value(K::kLosses), pairs(p, 2 + i), pairs(p, 4 + i)) +
                               draft.random.uniform(-9, P == 3 ? 2 : 9));
      at = pairs(p, 4 + i) + 1;
    }
    draft.data.scalars.step_labelled += 1;
    draft.data.scalars.step_weight += pairs(p, 4) - pairs(p, 1);
  }
  if (c.is_non_finite()) draft.value(K::kLosses).flat(static_cast<size_t>(pairs(0, 2))) = not_finite(c);
  if (!c.expects_bad_index()) return;
  draft.data.bad_data = DataFault::kPair;
  draft.data.bad_position = P - 1;
  if (c.data == CaseValues::kBadHigh) pairs(P - 1, 4) = static_cast<double>(draft.value(K::kLosses).size()) + 1;
  if (c.data == CaseValues::kBadLow) pairs(P - 1, 2) = pairs(P - 1, 1) - 1;
}
void fit_data(CaseDraft& draft) { draft.c.pass == Pass::kBackward ? fit<Backward>(draft) : fit<Evaluate>(draft); }

// ---- results ----

// Sets the expected results. Kernels sum in f64, but may compute sigmoids in f32, so errors are
// relative to the magnitude of the loss.
void expect(Oracle& o) {
  const bool backward = o.c.pass == Pass::kBackward;
  if (o.c.is_non_finite()) {
    o.out.only_skip = true;
    if (backward) o.out.scalars.skip = 1;
    return;
  }
  static_assert(uint32_t{Backward::kLosses} == Evaluate::kLosses && uint32_t{Backward::kPairs} == Evaluate::kPairs);
  const PreferenceAttribute& a = o.c.as<PreferenceAttribute>();
  const Array& losses = o.value(Backward::kLosses);
  const std::vector<ReferencePair> pairs = pairs_of(o.value(Backward::kPairs));
  const double distance = distance_of(losses, pairs);
  const Judged all = judge(a, losses, pairs, distance);
  const StepScalars& scalars = o.data.scalars;
  if (backward) {
    const Array weights = weights_of(a, losses, pairs, distance, scalars);
    o.expect(Backward::kWeights, {weights, magnitudes(weights), 4});
    const double loss = step_loss(a, losses, pairs, distance, scalars);
    o.out.loss_sum = number(scalars.loss_sum + loss, scalars.loss_sum + std::abs(loss), 4);
  } else {
    Array answers = zeros({pairs.size(), 2});
    for (size_t p = 0; p < pairs.size(); ++p) {
      for (size_t i = 0; i < 2; ++i)
        answers(p, i) = pairs[p].wish == 0 ? 0 : -sum_of_rows(losses, pairs[p].first[i], pairs[p].end[i]);
    }
    o.expect(Evaluate::kLogProbabilities, {answers, magnitudes(answers), 1});
    const double loss = all.loss + all.mean_of_tokens;
    o.out.loss_sum = number(scalars.loss_sum + loss, scalars.loss_sum + std::abs(loss), 4);
    o.out.scalars.labelled += all.pairs;
  }
  o.out.scalars.correct += all.correct;
  for (uint32_t i = 0; i < 2; ++i) {
    o.out.scalars.judged[i] += all.judged[i];
    o.out.rewards[i] =
        number(scalars.rewards[i] + all.rewards[i], std::abs(scalars.rewards[i]) + std::abs(all.rewards[i]) + 1, 2);
  }
  o.out.margin = all.margin / (kSafety * kRounding);
}

// ---- gradient check ----

Differentiable differentiable(const KernelCase& c, CaseData& data) {
  const PreferenceAttribute& a = c.as<PreferenceAttribute>();
  const std::vector<ReferencePair> pairs = pairs_of(data.values[Backward::kPairs]);
  const double distance = distance_of(data.values[Backward::kLosses], pairs);  // a constant for kKto
  return {{data.values[Backward::kLosses]}, {Backward::kWeights}, [=, scalars = data.scalars](const auto& at) {
            return step_loss(a, at[0], pairs, distance, scalars);
          }};
}

std::vector<KnownValue> known_values() {
  // Two answers with equal rewards cost log(2). If each token of an answer has the probability 1/2,
  // the answer's odds are 1.
  const Array losses = {1.0, 2.0, 1.0, std::log(2.0), std::log(2.0)};
  const std::vector<ReferencePair> same = {{1, 0, {0, 2}, {2, 3}, {-3, -1}}}, half = {{1, 3, {3, 2}, {5, 3}, {0, 0}}};
  const Judged orpo = judge(attribute_of(kOrpo, 1), losses, half, 0);
  return {{"equal rewards", Array{judge(attribute_of(kDpo, 0.3), losses, same, 0).loss}, Array{std::log(2.0)}, 1e-14},
          {"equal rewards of single answers", Array{judge(attribute_of(kKto, 0.3), losses, same, 0).loss}, Array{0.5},
           1e-14},
          {"odds of 1 against e^-1 / (1 - e^-1)", Array{orpo.loss}, Array{std::log(1 + 1 / (std::exp(1.0) - 1))},
           1e-14},
          {"the loss of a whole conversation", Array{orpo.tokens}, Array{2 * std::log(2.0)}, 1e-14}};
}

// ---- wrong kernels ----

template <auto kChange>
Status changed(const KernelContext& context, const PreferenceBackwardArgs& args) {
  PreferenceBackwardArgs wrong = args;
  kChange(wrong.preference);
  return cpu_preference_backward(context, wrong);
}

constexpr WrongKernel kWrongKernels[] = {
    wrong_kernel<Backward, changed<[](PreferenceAttribute& a) { a.label_smoothing = 0; }>>(
        "preference_forgets_label_smoothing"),
    wrong_kernel<Backward,
                 changed<[](PreferenceAttribute& a) { std::swap(a.desirable_weight, a.undesirable_weight); }>>(
        "preference_swaps_weights"),
    wrong_kernel<Backward, changed<[](PreferenceAttribute& a) { a.beta *= 1.01; }>>("preference_takes_another_beta"),
    wrong_kernel<Backward,
                 [](const KernelContext& context, const PreferenceBackwardArgs& args) {
                   StepScalars other = *args.scalars;
                   other.step_labelled += 1;
                   PreferenceBackwardArgs wrong = args;
                   wrong.scalars = &other;
                   const Status status = cpu_preference_backward(context, wrong);
                   other.step_labelled -= 1;
                   *args.scalars = other;
                   return status;
                 }>("preference_divides_by_another_number"),
    wrong_kernel<Backward,
                 [](const KernelContext& context, const PreferenceBackwardArgs& args) {
                   const Status status = cpu_preference_backward(context, args);
                   for (uint64_t m = 0; m < args.M; ++m) args.weights[m] = -args.weights[m];
                   return status;
                 }>("preference_turns_round"),
    wrong_kernel<Evaluate,
                 [](const KernelContext& context, const PreferenceEvaluateArgs& args) {
                   const Status status = cpu_preference_evaluate(context, args);
                   for (uint32_t p = 0; p < args.P; ++p)
                     std::swap(args.log_probabilities[2 * p], args.log_probabilities[2 * p + 1]);
                   return status;
                 }>("preference_swaps_answers"),
};

constexpr Op kFamilyOps[] = {Op::kPreference};

}  // namespace

extern constinit const OpFamily kPreferenceFamily = {.ops = kFamilyOps,
                                                     .add_cases = add_cases,
                                                     .fit_data = fit_data,
                                                     .expect = expect,
                                                     .differentiable = differentiable,
                                                     .known_values = known_values,
                                                     .wrong_kernels = kWrongKernels};

}  // namespace reprise::test
