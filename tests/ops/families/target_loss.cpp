// Losses of single numbers: cases, data, reference and gradient check. The reference follows the
// papers and uses the C library's exp and log.
#include <cmath>

#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/op_family.h"

namespace reprise::test {
namespace {

using Backward = TargetLossBackward;
using Evaluate = TargetLossEvaluate;
using Kind = TargetLossKind;

// ---- the reference ----

double log_sigmoid(double x) { return -std::log(1 + std::exp(-x)); }

struct One {
  double loss, slope;
};
One judge_one(const TargetLossAttribute& a, double x, double t, double weight) {
  const double d = x - t, delta = static_cast<double>(a.delta), sign = d > 0 ? 1 : d < 0 ? -1 : 0;
  switch (static_cast<Kind>(a.kind)) {
    case Kind::kMse: return {d * d, 2 * d};
    case Kind::kL1: return {std::abs(d), sign};
    case Kind::kHuber:
      return std::abs(d) <= delta ? One{d * d / 2, d} : One{delta * (std::abs(d) - delta / 2), delta * sign};
    case Kind::kBinary: break;
  }
  return {-weight * t * log_sigmoid(x) - (1 - t) * log_sigmoid(-x),
          (1 - t) / (1 + std::exp(-x)) - weight * t / (1 + std::exp(x))};
}

struct All {
  Array slopes, sizes;
  double loss = 0, magnitude = 0;
  uint64_t labelled = 0, correct = 0;
};
All judge(const TargetLossAttribute& a, const Array& x, const Array& targets, const Array* weights) {
  All all{zeros_like(x), zeros_like(x)};
  const size_t C = x.shape().back();
  for (size_t i = 0; i < x.size(); ++i) {
    const double t = targets.flat(i);
    if (std::isnan(t)) continue;
    const double weight = weights == nullptr ? 1 : weights->flat(i % C);
    const One one = judge_one(a, x.flat(i), t, weight);
    all.slopes.flat(i) = one.slope;
    all.sizes.flat(i) = std::abs(one.slope);
    if (static_cast<Kind>(a.kind) == Kind::kBinary)
      all.sizes.flat(i) = (1 - t) / (1 + std::exp(-x.flat(i))) + weight * t / (1 + std::exp(x.flat(i)));
    all.loss += one.loss;
    all.magnitude += std::abs(one.loss);
    all.labelled += 1;
    all.correct += static_cast<Kind>(a.kind) == Kind::kBinary && (x.flat(i) > 0) == (t > 0.5);
  }
  return all;
}

constexpr double kTerms = 12;  // number of roundings in a loss or a derivative

// ---- cases ----

void add_targets(CaseTable& table, const TargetLossAttribute& loss, std::initializer_list<uint32_t> shape,
                 CaseValues data, const std::string& name, bool weighs = false, uint32_t others = 0) {
  static constexpr const char* kWords[] = {"mse", "l1", "huber", "binary"};
  const auto x = shaped(shape), s = scalars_tensor();
  const auto weights = weighs ? shaped({*(shape.end() - 1)}) : std::nullopt;
  std::string tag = kWords[loss.kind];
  for (const uint32_t side : shape) tag += "_" + str(side);
  const auto set = [&](KernelCase& c) { c.data = data, c.other_labels = others; };
  set(table.add<Backward>(tag + name,
                          {{Backward::kDx, x},
                           {Backward::kScalars, s},
                           {Backward::kX, x},
                           {Backward::kLabels, x},
                           {Backward::kWeights, weights}},
                          loss));
  set(table.add<Evaluate>(
      tag + name, {{Evaluate::kScalars, s}, {Evaluate::kX, x}, {Evaluate::kLabels, x}, {Evaluate::kWeights, weights}},
      loss));
}

TargetLossAttribute loss_of(Kind kind, float delta = 0) { return {static_cast<uint32_t>(kind), delta}; }

void add_cases(CaseTable& table) {
  if (table.is_bench())
    return add_targets(table, loss_of(Kind::kBinary), {64, 112, 112, 4}, CaseValues::kAllLabelled, "");
  for (const TargetLossAttribute& loss :
       {loss_of(Kind::kMse), loss_of(Kind::kL1), loss_of(Kind::kHuber, 0.25f), loss_of(Kind::kBinary)}) {
    add_targets(table, loss, {1, 1}, CaseValues::kAllLabelled, "");
    add_targets(table, loss, {33, 3}, CaseValues::kPlain, "_some_missing", false, 40);
    add_targets(table, loss, {2, 5, 7, 3}, CaseValues::kAllLabelled, "");
    add_targets(table, loss, {700, 41}, CaseValues::kPlain, "");
    add_targets(table, loss, {12, 5}, CaseValues::kLarge, "_large", false, 3);
    add_targets(table, loss, {6, 4}, CaseValues::kAllIgnored, "_none", false, 5);
    add_targets(table, loss, {9, 4}, CaseValues::kNonFinite, "_non_finite");
    add_targets(table, loss, {9, 4}, CaseValues::kNaN, "_nan");
  }
  add_targets(table, loss_of(Kind::kL1), {13, 5}, CaseValues::kEqual, "_met");
  add_targets(table, loss_of(Kind::kHuber, 3.0f), {40, 9}, CaseValues::kLarge, "_wide");
  for (const auto data : {CaseValues::kPlain, CaseValues::kLarge}) {
    add_targets(table, loss_of(Kind::kBinary), {29, 5}, data,
                data == CaseValues::kLarge ? "_weighted_large" : "_weighted", true, 7);
  }
  add_targets(table, loss_of(Kind::kBinary), {3, 40, 21}, CaseValues::kAllLabelled, "_weighted", true);
}

// ---- data ----

// Returns `d`, a distance of prediction and target, moved away from 0, where kL1 is not
// differentiable, and from +-delta, where kHuber's derivative has a kink.
double smooth_distance(double d, double delta) {
  d = 1.5 * away_from_zero(d);
  return delta > 0 && std::abs(std::abs(d) - delta) < 0.02 ? d + std::copysign(0.05, d) : d;
}

template <typename K>
void fit(CaseDraft& draft) {
  const KernelCase& c = draft.c;
  Array &x = draft.value(K::kX), &targets = draft.value(K::kLabels);
  const bool is_binary = static_cast<Kind>(c.as<TargetLossAttribute>().kind) == Kind::kBinary;
  for (double& element : x) element = c.data == CaseValues::kLarge ? as_f32(element * 40) : away_from_zero(element);
  for (size_t i = 0; i < targets.size(); ++i) {
    double& target = targets.flat(i);
    if (is_binary) target = draft.random.below(8) == 0 ? 0.25 : static_cast<double>(draft.random.below(2));
    if (!is_binary)
      target = as_f32(x.flat(i) - smooth_distance(target, static_cast<double>(c.as<TargetLossAttribute>().delta)));
    if (c.data == CaseValues::kEqual && i % 2 == 0) target = x.flat(i);
    const bool sometimes = c.data == CaseValues::kPlain && draft.random.below(4) == 0;
    if (sometimes || c.data == CaseValues::kAllIgnored) target = std::nan("");
    draft.data.scalars.step_labelled += !std::isnan(target);
  }
  if (c.has(K::kWeights)) {
    for (double& weight : draft.value(K::kWeights)) weight = as_f32(0.25 + 3 * std::abs(weight));
  }
  if (c.is_non_finite()) x.flat(x.size() / 2) = not_finite(c);
}
void fit_data(CaseDraft& draft) { draft.c.pass == Pass::kBackward ? fit<Backward>(draft) : fit<Evaluate>(draft); }

// ---- results ----

void expect(Oracle& o) {
  const auto& loss = o.c.as<TargetLossAttribute>();
  if (o.c.is_non_finite()) {
    o.out.only_skip = true;
    if (o.c.pass == Pass::kBackward) o.out.scalars.skip = 1;
    return;
  }
  if (o.c.pass == Pass::kEvaluate) {
    const All all = judge(loss, o.value(Evaluate::kX), o.value(Evaluate::kLabels), o.optional(Evaluate::kWeights));
    o.out.loss_sum = number(o.data.scalars.loss_sum + all.loss, all.magnitude, kTerms);
    o.out.scalars.labelled += all.labelled;
    o.out.scalars.correct += all.correct;
    return;
  }
  const All all = judge(loss, o.value(Backward::kX), o.value(Backward::kLabels), o.optional(Backward::kWeights));
  const auto step = static_cast<double>(o.data.scalars.step_labelled);
  o.expect(Backward::kDx, {all.slopes / step, all.sizes / step, kTerms});
  o.out.loss_sum = number(o.data.scalars.loss_sum + all.loss / step, all.magnitude / step, kTerms);
}

// ---- gradient check ----

Differentiable differentiable(const KernelCase& c, CaseData& data) {
  return {{data.values[Backward::kX]}, {Backward::kDx}, [&c, &data](const auto& at) {
            const Array* weights = c.has(Backward::kWeights) ? &data.values[Backward::kWeights] : nullptr;
            return judge(c.as<TargetLossAttribute>(), at[0], data.values[Backward::kLabels], weights).loss /
                   static_cast<double>(data.scalars.step_labelled);
          }};
}

// Returns values computed by hand. The values for log(2) and pos_weight are from PyTorch's
// BCEWithLogitsLoss.
std::vector<KnownValue> known_values() {
  const auto of = [](const TargetLossAttribute& loss, double x, double t, double weight = 1) {
    return Array{judge_one(loss, x, t, weight).loss};
  };
  return {{"a square", of(loss_of(Kind::kMse), 3, 1), Array{4.0}},
          {"a distance", of(loss_of(Kind::kL1), -3, 1), Array{4.0}},
          {"huber within", of(loss_of(Kind::kHuber, 2), 2, 1), Array{0.5}},
          {"huber beyond", of(loss_of(Kind::kHuber, 2), -3, 1), Array{6.0}},
          {"nothing known", of(loss_of(Kind::kBinary), 0, 1), Array{std::log(2.0)}, 1e-15},
          {"nothing known of what counts thrice", of(loss_of(Kind::kBinary), 0, 1, 3), Array{3 * std::log(2.0)},
           1e-15}};
}

// ---- wrong kernels ----

Status weighs_nothing(const KernelContext& k, const TargetLossBackwardArgsOf<float>& a) {
  TargetLossBackwardArgsOf<float> plain = a;
  plain.in.positive_weights = nullptr;
  return cpu_target_loss_backward(k, plain);
}
Status bends_later(const KernelContext& k, const TargetLossBackwardArgsOf<float>& a) {
  TargetLossBackwardArgsOf<float> wide = a;
  wide.in.loss.delta *= 2;
  return cpu_target_loss_backward(k, wide);
}
Status divides_by_all_numbers(const KernelContext& k, const TargetLossBackwardArgsOf<float>& a) {
  const uint64_t labelled = a.scalars->step_labelled;
  a.scalars->step_labelled = a.in.M * a.in.C;
  const Status status = cpu_target_loss_backward(k, a);
  a.scalars->step_labelled = labelled;
  return status;
}
Status evaluates_without_weights(const KernelContext& k, const TargetLossEvaluateArgsOf<float>& a) {
  TargetLossEvaluateArgsOf<float> plain = a;
  plain.in.positive_weights = nullptr;
  return cpu_target_loss_evaluate(k, plain);
}
constexpr WrongKernel kWrongKernels[] = {
    wrong_kernel<Backward, weighs_nothing>("target_loss_weighs_nothing"),
    wrong_kernel<Backward, bends_later>("target_loss_bends_later"),
    wrong_kernel<Backward, divides_by_all_numbers>("target_loss_divides_by_all_numbers"),
    wrong_kernel<Evaluate, evaluates_without_weights>("target_loss_evaluates_without_weights"),
};

constexpr Op kFamilyOps[] = {Op::kTargetLoss};

}  // namespace

extern constinit const OpFamily kTargetLossFamily = {
    .ops = kFamilyOps, .add_cases = add_cases, .fit_data = fit_data, .expect = expect, .differentiable = differentiable,
    .known_values = known_values, .wrong_kernels = kWrongKernels};

}  // namespace reprise::test
