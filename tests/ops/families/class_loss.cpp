// Cross-entropy of classes and Dice's coefficient: cases, data, reference and gradient check.
#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/op_family.h"

namespace reprise::test {
namespace {

using Backward = ClassLossBackward;
using Evaluate = ClassLossEvaluate;

// ---- the reference ----

struct Labels {
  const Array& of;
  double none;
  bool has(size_t row) const { return of.flat(row) != none; }
  size_t at(size_t row) const { return static_cast<size_t>(of.flat(row)); }
};

struct Divisors {
  double labelled = 0, weight = 0;
};
struct All {
  double loss = 0, magnitude = 0;
  double entropy = 0, entropy_magnitude = 0;  // the loss without Dice's loss
  Array dx, sizes;  // [M,C]
  uint64_t labelled = 0, correct = 0;
  double margin = std::numeric_limits<double>::infinity();  // smallest distance between the two largest logits of a row
};

double weight_of(const Array* weights, size_t c) { return weights == nullptr ? 1 : weights->flat(c); }

// Computes the formulas of lib/ops/class_loss.h. The derivative with respect to the softmax, dp, is
// computed first. The chain rule then gives dx.
class Reference {
 public:
  Reference(const ClassLossAttribute& loss, const Array& x, const Labels& labels, const Array* weights)
      : x_(x), labels_(labels), weights_(weights), C_(x.shape().back()), M_(x.size() / C_), N_(x.shape()[0]),
        smoothing_(static_cast<double>(loss.label_smoothing)), dice_(static_cast<double>(loss.dice)) {}

  Divisors own_divisors() const {
    Divisors own;
    for (size_t m = 0; m < M_; ++m) {
      if (labels_.has(m)) own.labelled += 1, own.weight += weight_of(weights_, labels_.at(m));
    }
    return own;
  }

  All judge(const Divisors& by) const {
    All all;
    all.dx = all.sizes = zeros_like(x_);
    for (size_t m = 0; m < M_; ++m) {
      if (labels_.has(m)) add_entropy(m, by, all);
    }
    all.entropy = all.loss, all.entropy_magnitude = all.magnitude;
    for (size_t n = 0; n < N_ && dice_ > 0; ++n) add_dice(n, by, all);
    return all;
  }

 private:
  double z(size_t m, size_t c) const { return x_.flat(m * C_ + c); }
  double log_p(size_t m, size_t c) const {
    double maximum = z(m, 0), sum = 0;
    for (size_t k = 1; k < C_; ++k) maximum = std::max(maximum, z(m, k));
    for (size_t k = 0; k < C_; ++k) sum += std::exp(z(m, k) - maximum);
    return z(m, c) - maximum - std::log(sum);
  }

  void add_entropy(size_t m, const Divisors& by, All& all) const {
    const size_t y = labels_.at(m);
    const double share = (1 - dice_) / by.weight;
    std::vector<double> p(C_), wanted(C_);
    double mass = 0, size = 1;
    for (size_t c = 0; c < C_; ++c) {
      wanted[c] = smoothing_ / static_cast<double>(C_) * weight_of(weights_, c) +
                  (c == y ? (1 - smoothing_) * weight_of(weights_, c) : 0);
      p[c] = std::exp(log_p(m, c));
      mass += wanted[c];
      size = std::max(size, std::abs(z(m, c)));
      all.loss -= share * wanted[c] * log_p(m, c);
      all.magnitude += share * wanted[c] * (std::abs(log_p(m, c)) + 1);
    }
    size_t best = 0;
    double second = -std::numeric_limits<double>::infinity();
    for (size_t c = 1; c < C_; ++c) best = z(m, c) > z(m, best) ? c : best;
    for (size_t c = 0; c < C_; ++c) second = c == best ? second : std::max(second, z(m, c));
    all.labelled += 1;
    all.correct += best == y;
    for (size_t c = 0; c < C_; ++c) {
      all.dx.flat(m * C_ + c) += share * (mass * p[c] - wanted[c]);
      all.sizes.flat(m * C_ + c) += share * (mass * p[c] * size + wanted[c]);
    }
  }

  void add_dice(size_t n, const Divisors& by, All& all) const {
    constexpr double kSmoothing = 1e-5;
    const size_t rows = M_ / N_;
    std::vector<double> hits(C_), predicted(C_), wanted(C_);
    double labelled = 0, mean = 0;
    for (size_t m = n * rows; m < (n + 1) * rows; ++m) {
      if (!labels_.has(m)) continue;
      labelled += 1;
      for (size_t c = 0; c < C_; ++c) {
        const double p = std::exp(log_p(m, c)), is_label = c == labels_.at(m);
        hits[c] += p * is_label, predicted[c] += p, wanted[c] += is_label;
      }
    }
    const double share = dice_ * labelled / by.labelled;
    for (size_t c = 0; c < C_; ++c)
      mean += (2 * hits[c] + kSmoothing) / (predicted[c] + wanted[c] + kSmoothing) / static_cast<double>(C_);
    if (labelled > 0) all.loss += share * (1 - mean), all.magnitude += share;
    for (size_t m = n * rows; m < (n + 1) * rows; ++m) {
      if (!labels_.has(m)) continue;
      std::vector<double> dp(C_);
      double dot = 0, size = 0;
      for (size_t c = 0; c < C_; ++c) {
        const double both = predicted[c] + wanted[c] + kSmoothing;
        dp[c] = -share / static_cast<double>(C_) *
                (2.0 * (c == labels_.at(m)) / both - (2 * hits[c] + kSmoothing) / (both * both));
        dot += std::exp(log_p(m, c)) * dp[c];
        size = std::max(size, share / static_cast<double>(C_) * 3 / both);
      }
      for (size_t c = 0; c < C_; ++c) {
        const double p = std::exp(log_p(m, c));
        all.dx.flat(m * C_ + c) += p * (dp[c] - dot);
        all.sizes.flat(m * C_ + c) += p * size * 4;
      }
    }
  }

  const Array& x_;
  Labels labels_;
  const Array* weights_;
  size_t C_, M_, N_;
  double smoothing_, dice_;
};

double none_of(const KernelCase& c, uint32_t labels) {
  return c.tensor(labels).dtype == DType::kU8 ? double{kIgnoredByte} : double{kIgnoredLabel};
}

// ---- cases ----

struct Form {
  float smoothing = 0, dice = 0;
  bool weighs = false;
};

void add_classes(CaseTable& table, std::initializer_list<uint32_t> shape, DType stored, CaseValues data,
                 const std::string& name, const Form& form = {}, uint32_t others = 0) {
  const auto x = shaped(shape), s = scalars_tensor();
  const auto weights = form.weighs ? shaped({*(shape.end() - 1)}) : std::nullopt;
  Tensor labels = *x;
  labels.rank -= 1, labels.shape[labels.rank] = 1, labels.dtype = stored;
  labels.bytes = align_up(labels.used_bytes());
  std::string tag = dtype_info(stored).name;
  for (const uint32_t side : shape) tag += "_" + str(side);
  tag += name;
  const ClassLossAttribute loss = {form.smoothing, form.dice};
  const auto set = [&](KernelCase& c) { c.data = data, c.other_labels = others; };
  set(table.add<Backward>(tag,
                          {{Backward::kDx, x},
                           {Backward::kScalars, s},
                           {Backward::kX, x},
                           {Backward::kLabels, labels},
                           {Backward::kWeights, weights}},
                          loss));
  set(table.add<Evaluate>(
      tag, {{Evaluate::kScalars, s}, {Evaluate::kX, x}, {Evaluate::kLabels, labels}, {Evaluate::kWeights, weights}},
      loss));
}

void add_cases(CaseTable& table) {
  constexpr DType kI32 = DType::kI32, kU8 = DType::kU8;
  if (table.is_bench()) return add_classes(table, {8, 112, 112, 21}, kU8, CaseValues::kAllLabelled, "");
  add_classes(table, {1, 2}, kI32, CaseValues::kAllLabelled, "");
  add_classes(table, {33, 10}, kI32, CaseValues::kPlain, "");
  add_classes(table, {9, 1003}, kI32, CaseValues::kPlain, "_one_of_several", {}, 30);
  add_classes(table, {2, 5, 7, 3}, kU8, CaseValues::kPlain, "");
  add_classes(table, {3, 40, 19}, kU8, CaseValues::kAllLabelled, "");
  add_classes(table, {2, 70, 60, 2}, kU8, CaseValues::kPlain, "");
  add_classes(table, {12, 33}, kI32, CaseValues::kLarge, "_large");
  add_classes(table, {13, 5}, kI32, CaseValues::kEqual, "_equal_logits");
  for (const bool weighs : {false, true}) {
    const std::string tag = weighs ? "_weighted" : "";
    add_classes(table, {21, 6}, kI32, CaseValues::kPlain, "_smooth" + tag, {0.125f, 0, weighs}, 5);
    add_classes(table, {2, 9, 4, 17}, kU8, CaseValues::kPlain, "_dice" + tag, {0, 1, weighs}, 9);
    add_classes(table, {3, 6, 5, 4}, kU8, CaseValues::kPlain, "_all" + tag, {0.25f, 0.5f, weighs}, 9);
  }
  add_classes(table, {21, 6}, kI32, CaseValues::kPlain, "_weighted", {0, 0, true}, 5);
  add_classes(table, {2, 33, 35, 3}, kU8, CaseValues::kAllLabelled, "_dice", {0, 0.5f});
  add_classes(table, {5, 4}, kI32, CaseValues::kPlain, "_dice", {0, 0.5f});
  add_classes(table, {6, 4, 5}, kU8, CaseValues::kAllIgnored, "_all_ignored", {0.1f, 0.5f}, 5);
  for (const DType stored : {kI32, kU8}) {
    add_classes(table, {11, 7}, stored, CaseValues::kBadHigh, "_bad_high");
    add_classes(table, {6, 4, 5}, stored, CaseValues::kBadHigh, "_bad_high_dice", {0, 0.5f});
  }
  add_classes(table, {11, 7}, kI32, CaseValues::kBadLow, "_bad_low");
  add_classes(table, {11, 7}, kI32, CaseValues::kNonFinite, "_non_finite");
  add_classes(table, {11, 7}, kI32, CaseValues::kNaN, "_nan");
}

// ---- data ----

template <typename K>
void fit(CaseDraft& draft) {
  const KernelCase& c = draft.c;
  Array& x = draft.value(K::kX);
  const Tensor& tensor = c.tensor(K::kLabels);
  draft.value(K::kLabels) = Array(Array::shape_type(tensor.shape, tensor.shape + tensor.rank), 0.0);
  Array& labels = draft.value(K::kLabels);
  const auto C = static_cast<uint32_t>(c.tensor(K::kX).last_dimension());
  if (c.data == CaseValues::kLarge) x = as_f32(x * 40);
  if (c.data == CaseValues::kEqual) x.fill(0.5);
  for (double& label : labels) {
    label = static_cast<double>(draft.random.below(C));
    const bool sometimes = c.data == CaseValues::kPlain && draft.random.below(3) == 0;
    if (sometimes || c.data == CaseValues::kAllIgnored) label = none_of(c, K::kLabels);
  }
  if (c.data == CaseValues::kEqual) labels.flat(0) = 0;  // equal logits: the first class counts as the maximum
  const Array* weights = nullptr;
  if (c.has(K::kWeights)) {
    for (double& weight : draft.value(K::kWeights)) weight = as_f32(0.25 + 3 * std::abs(weight));
    weights = &draft.value(K::kWeights);
  }
  const Divisors own =
      Reference(c.as<ClassLossAttribute>(), x, {labels, none_of(c, K::kLabels)}, weights).own_divisors();
  StepScalars& scalars = draft.data.scalars;
  // The second term is the weight of the labels in the step's other micro-batches.
  scalars.step_weight = own.weight + static_cast<double>(scalars.step_labelled) * 0.75;
  scalars.step_labelled += static_cast<uint64_t>(own.labelled);
  if (c.is_non_finite()) x.flat(x.size() / 2) = not_finite(c);
  if (!c.expects_bad_index()) return;
  draft.data.bad_data = DataFault::kLabel;
  draft.data.bad_position = labels.size() * 2 / 3;
  labels.flat(draft.data.bad_position) = c.data == CaseValues::kBadLow ? -1.0 : C;
}
void fit_data(CaseDraft& draft) { draft.c.pass == Pass::kBackward ? fit<Backward>(draft) : fit<Evaluate>(draft); }

// ---- results ----

double terms_of(double C) { return C + 16; }

void expect_backward(Oracle& o) {
  const Labels labels = {o.value(Backward::kLabels), none_of(o.c, Backward::kLabels)};
  const Reference reference(o.c.as<ClassLossAttribute>(), o.value(Backward::kX), labels,
                            o.optional(Backward::kWeights));
  const All all = reference.judge({static_cast<double>(o.data.scalars.step_labelled), o.data.scalars.step_weight});
  const double terms = terms_of(static_cast<double>(o.c.tensor(Backward::kX).last_dimension()));
  o.expect(Backward::kDx, {all.dx, all.sizes, terms});
  o.out.loss_sum = number(o.data.scalars.loss_sum + all.loss, all.magnitude, terms);
}

void expect_evaluate(Oracle& o) {
  const Labels labels = {o.value(Evaluate::kLabels), none_of(o.c, Evaluate::kLabels)};
  const Reference reference(o.c.as<ClassLossAttribute>(), o.value(Evaluate::kX), labels,
                            o.optional(Evaluate::kWeights));
  const Divisors own = reference.own_divisors();
  if (own.labelled == 0) return;
  const All all = reference.judge(own);
  const double terms = terms_of(static_cast<double>(o.c.tensor(Evaluate::kX).last_dimension()));
  if (o.c.has(Evaluate::kWeights)) {
    o.out.loss_sum = number(o.data.scalars.loss_sum + (all.loss - all.entropy) * own.labelled,
                            (all.magnitude - all.entropy_magnitude) * own.labelled, terms);
    o.out.weighted_loss =
        number(o.data.scalars.weighted_loss + all.entropy * own.weight, all.entropy_magnitude * own.weight, terms);
    o.out.scalars.step_weight += own.weight;
  } else {
    o.out.loss_sum = number(o.data.scalars.loss_sum + all.loss * own.labelled, all.magnitude * own.labelled, terms);
  }
  o.out.scalars.labelled += all.labelled;
  o.out.scalars.correct += all.correct;
}

void expect(Oracle& o) {
  if (!o.c.is_non_finite()) return o.c.pass == Pass::kBackward ? expect_backward(o) : expect_evaluate(o);
  o.out.only_skip = true;
  if (o.c.pass == Pass::kBackward) o.out.scalars.skip = 1;
}

// ---- gradient check ----

Differentiable differentiable(const KernelCase& c, CaseData& data) {
  return {{data.values[Backward::kX]}, {Backward::kDx}, [&c, &data](const auto& at) {
            const Labels labels = {data.values[Backward::kLabels], none_of(c, Backward::kLabels)};
            const Array* weights = c.has(Backward::kWeights) ? &data.values[Backward::kWeights] : nullptr;
            const Reference reference(c.as<ClassLossAttribute>(), at[0], labels, weights);
            return reference.judge({static_cast<double>(data.scalars.step_labelled), data.scalars.step_weight}).loss;
          }};
}

std::vector<KnownValue> known_values() {
  const Array x = ref::zeros({3, 7}), labels = {0.0, -100.0, 6.0}, weights = {1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 3.0};
  const auto of = [&](const ClassLossAttribute& loss, const Array* w) {
    const Reference reference(loss, x, {labels, -100}, w);
    return reference.judge(reference.own_divisors());
  };
  const double p = 1.0 / 7, overlap = (2 * p + 1e-5) / (p + 1 + 1e-5), others = 1e-5 / (p + 1e-5);
  return {{"the loss of equal logits is the log of the classes", Array{of({}, nullptr).loss}, Array{std::log(7.0)},
           1e-14},
          {"whatever their weights", Array{of({}, &weights).loss}, Array{std::log(7.0)}, 1e-14},
          {"labelled rows", Array{static_cast<double>(of({}, nullptr).labelled)}, Array{2.0}},
          {"correct rows: the first maximum is class 0", Array{static_cast<double>(of({}, nullptr).correct)},
           Array{1.0}},
          {"dice of equal logits", Array{of({0, 1}, nullptr).loss}, Array{1 - (overlap + 6 * others) / 7}, 1e-14}};
}

// ---- wrong kernels ----

template <void (*kChange)(ClassLossInputOf<float>&)>
Status backward_with(const KernelContext& k, const ClassLossBackwardArgsOf<float>& a) {
  ClassLossBackwardArgsOf<float> changed = a;
  kChange(changed.in);
  return cpu_class_loss_backward(k, changed);
}
void weigh_nothing(ClassLossInputOf<float>& in) { in.weights = nullptr; }
void smooth_nothing(ClassLossInputOf<float>& in) { in.loss.label_smoothing = 0; }
void take_one_sample(ClassLossInputOf<float>& in) { in.N = 1; }  // one sample needs less scratch than N
Status evaluates_without_weights(const KernelContext& k, const ClassLossEvaluateArgsOf<float>& a) {
  ClassLossEvaluateArgsOf<float> changed = a;
  weigh_nothing(changed.in);
  return cpu_class_loss_evaluate(k, changed);
}
constexpr WrongKernel kWrongKernels[] = {
    wrong_kernel<Backward, backward_with<weigh_nothing>>("class_loss_weighs_nothing"),
    wrong_kernel<Backward, backward_with<smooth_nothing>>("class_loss_smooths_nothing"),
    wrong_kernel<Backward, backward_with<take_one_sample>>("class_loss_overlaps_all_samples"),
    wrong_kernel<Evaluate, evaluates_without_weights>("class_loss_evaluates_without_weights"),
};

constexpr Op kFamilyOps[] = {Op::kClassLoss};

}  // namespace

extern constinit const OpFamily kClassLossFamily = {
    .ops = kFamilyOps, .add_cases = add_cases, .fit_data = fit_data, .expect = expect, .differentiable = differentiable,
    .known_values = known_values, .wrong_kernels = kWrongKernels};

}  // namespace reprise::test
