// Losses of pairs: cases, data, reference and slope. The reference works pair by pair as the papers have it, with plain exp and log.
#include <cmath>

#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/op_family.h"

namespace reprise::test {
namespace {

using Backward = PairLossBackward;
using Evaluate = PairLossEvaluate;
using Kind = PairLossKind;

// ---- the reference ----

struct All {
  Array dx, sizes;
  double loss = 0, magnitude = 0;
  uint64_t labelled = 0, correct = 0;
  double margin = std::numeric_limits<double>::infinity();  // of what is counted as right
};

class Reference {
 public:
  Reference(const PairLossAttribute& loss, const Array& x, const Array& targets)
      : loss_(loss), kind_(static_cast<Kind>(loss.kind)), x_(x), targets_(targets), D_(x.shape()[1]) {
    for (size_t i = 0; i < targets.size(); ++i) {
      if (!std::isnan(targets.flat(i))) pairs_.push_back(i);
    }
  }

  All judge() const {
    All all{zeros_like(x_), zeros_like(x_)};
    all.labelled = pairs_.size();
    for (size_t v = 0; v < pairs_.size(); ++v) {
      if (kind_ == Kind::kContrast) {
        add_contrast(v, false, all);
        if (loss_.symmetric != 0) add_contrast(v, true, all);
      } else {
        add_alone(pairs_[v], all);
      }
    }
    return all;
  }

  double cosine(size_t first, size_t second) const {  // rows of x
    const double lengths = length(first) * length(second);
    double sum = 0;
    for (size_t k = 0; k < D_; ++k) sum += at(first, k) * at(second, k);
    return length(first) < 1e-12 || length(second) < 1e-12 ? 0 : sum / lengths;
  }

 private:
  double at(size_t row, size_t k) const { return x_.flat(row * D_ + k); }
  double length(size_t row) const {
    double sum = 0;
    for (size_t k = 0; k < D_; ++k) sum += at(row, k) * at(row, k);
    return std::sqrt(sum);
  }

  // The slope by the cosine of two rows, carried on to both.
  void add_slope(size_t first, size_t second, double slope, double size, All& all) const {
    const double lengths = length(first) * length(second), c = cosine(first, second);
    if (length(first) < 1e-12 || length(second) < 1e-12) return;
    for (const bool is_first : {true, false}) {
      const size_t row = is_first ? first : second, other = is_first ? second : first;
      const double own = length(row) * length(row);
      for (size_t k = 0; k < D_; ++k) {
        all.dx.flat(row * D_ + k) += slope * (at(other, k) / lengths - c * at(row, k) / own);
        all.sizes.flat(row * D_ + k) += size * (std::abs(at(other, k)) / lengths + std::abs(at(row, k)) / own);
      }
    }
  }

  // Pair v among the others: its first among all seconds, or turned, its second among all firsts.
  void add_contrast(size_t v, bool turned, All& all) const {
    const double temperature = static_cast<double>(loss_.temperature), share = loss_.symmetric != 0 ? 0.5 : 1;
    std::vector<double> logits(pairs_.size());
    const auto rows = [&](size_t w) { return std::pair(2 * pairs_[turned ? w : v], 2 * pairs_[turned ? v : w] + 1); };
    double most = -std::numeric_limits<double>::infinity(), sum = 0, others = most;
    for (size_t w = 0; w < pairs_.size(); ++w) {
      logits[w] = cosine(rows(w).first, rows(w).second) / temperature;
      most = std::max(most, logits[w]);
      if (w != v) others = std::max(others, logits[w]);
    }
    for (const double logit : logits) sum += std::exp(logit - most);
    all.loss += share * (most - logits[v] + std::log(sum));
    all.magnitude += share * (2 / temperature + 1);
    // The first of the largest.
    const bool is_first = std::none_of(logits.begin(), logits.begin() + static_cast<long>(v), [&](double logit) { return logit >= logits[v]; });
    if (!turned) all.correct += is_first && logits[v] == most;
    if (!turned && logits[v] != others) all.margin = std::min(all.margin, std::abs(logits[v] - others) * temperature);
    for (size_t w = 0; w < pairs_.size(); ++w) {
      const double p = std::exp(logits[w] - most) / sum;
      add_slope(rows(w).first, rows(w).second, share / temperature * (p - (w == v)),
                share / temperature * (p * (1 + 2 / temperature) + (w == v)), all);
    }
  }

  void add_alone(size_t i, All& all) const {
    const double c = cosine(2 * i, 2 * i + 1), t = targets_.flat(i), margin = static_cast<double>(loss_.margin),
                 middle = (1 + margin) / 2;
    double loss = (c - t) * (c - t), slope = 2 * (c - t);
    if (kind_ == Kind::kCosine) {
      loss = t > 0 ? 1 - c : std::max(0.0, c - margin);
      slope = t > 0 ? -1 : c > margin ? 1 : 0;
      all.correct += (c > middle) == (t > 0);
      all.margin = std::min(all.margin, std::abs(c - middle));
    }
    all.loss += loss;
    all.magnitude += kind_ == Kind::kCosine ? 2 : (1 + std::abs(t)) * (1 + std::abs(t));
    add_slope(2 * i, 2 * i + 1, slope, kind_ == Kind::kCosine ? std::abs(slope) : 2 * (1 + std::abs(t)), all);
  }

  const PairLossAttribute loss_;
  const Kind kind_;
  const Array &x_, &targets_;
  const size_t D_;
  std::vector<size_t> pairs_;  // those with a target
};

// Roundings of a cosine, of a sum over pairs, and of what one of them comes to.
double terms_of(const KernelCase& c, uint32_t x) {
  return static_cast<double>(c.tensor(x).shape[0]) + 2.0 * c.tensor(x).shape[1] + 16;
}

// ---- cases ----

PairLossAttribute contrast_of(float temperature, bool symmetric = false) {
  return {static_cast<uint32_t>(Kind::kContrast), temperature, symmetric ? 1u : 0u};
}
PairLossAttribute cosine_of(float margin) { return {static_cast<uint32_t>(Kind::kCosine), 0, 0, margin}; }
constexpr PairLossAttribute kSimilarity = {static_cast<uint32_t>(Kind::kSimilarity)};

void add_pairs(CaseTable& table, const PairLossAttribute& loss, uint32_t B, uint32_t D, CaseValues data, const std::string& name,
               uint32_t others = 0) {
  static constexpr const char* kWords[] = {"contrast", "cosine", "similarity"};
  const auto x = shaped({2 * B, D}), s = scalars_tensor(), targets = shaped({B});
  const std::string tag = std::string(kWords[loss.kind]) + "_" + str(B) + "_" + str(D) + name;
  const auto set = [&](KernelCase& c) { c.data = data, c.other_labels = others; };
  set(table.add<Backward>(tag, {{Backward::kDx, x}, {Backward::kScalars, s}, {Backward::kX, x}, {Backward::kLabels, targets}},
                          loss));
  set(table.add<Evaluate>(tag, {{Evaluate::kScalars, s}, {Evaluate::kX, x}, {Evaluate::kLabels, targets}}, loss));
}

void add_cases(CaseTable& table) {
  if (table.is_bench()) return add_pairs(table, contrast_of(0.05f, true), 1024, 384, CaseValues::kAllLabelled, "");
  const std::pair<PairLossAttribute, const char*> losses[] = {{contrast_of(0.5f), ""},
                                                              {contrast_of(0.25f, true), "_symmetric"},
                                                              {cosine_of(0.25f), ""},
                                                              {kSimilarity, ""}};
  for (const auto& [loss, name] : losses) {
    const std::string tag = name;
    add_pairs(table, loss, 1, 5, CaseValues::kAllLabelled, tag);
    add_pairs(table, loss, 3, 2, CaseValues::kAllLabelled, tag);
    add_pairs(table, loss, 5, 3, CaseValues::kEqual, tag + "_equal");
    add_pairs(table, loss, 7, 19, CaseValues::kPlain, tag + "_some_missing", 40);
    add_pairs(table, loss, 40, 70, CaseValues::kAllLabelled, tag, 9);
    add_pairs(table, loss, 150, 33, CaseValues::kPlain, tag);
    add_pairs(table, loss, 6, 20, CaseValues::kLarge, tag + "_large");
    add_pairs(table, loss, 6, 20, CaseValues::kTiny, tag + "_tiny");
    add_pairs(table, loss, 4, 6, CaseValues::kAllIgnored, tag + "_none", 5);
    add_pairs(table, loss, 9, 4, CaseValues::kNonFinite, tag + "_non_finite");
    add_pairs(table, loss, 9, 4, CaseValues::kNaN, tag + "_nan");
  }
  add_pairs(table, contrast_of(0.03125f, true), 24, 48, CaseValues::kAllLabelled, "_sharp");
  add_pairs(table, cosine_of(-0.5f), 30, 3, CaseValues::kAllLabelled, "_far");
  add_pairs(table, contrast_of(0.5f), 2, 600, CaseValues::kAllLabelled, "_wide");
}

// ---- data ----

// A pair that stands where the loss bends, or is counted as right by a hair, is none.
bool is_near_an_edge(const PairLossAttribute& loss, double cosine) {
  const double margin = static_cast<double>(loss.margin);
  return static_cast<Kind>(loss.kind) == Kind::kCosine &&
         (std::abs(cosine - margin) < 0.02 || std::abs(cosine - (1 + margin) / 2) < 0.02);
}

template <typename K>
void fit(CaseDraft& draft) {
  const KernelCase& c = draft.c;
  const auto& loss = c.as<PairLossAttribute>();
  Array &x = draft.value(K::kX), &targets = draft.value(K::kLabels);
  const size_t D = c.tensor(K::kX).shape[1];
  const double size = c.data == CaseValues::kLarge ? 40 : c.data == CaseValues::kTiny ? 0.125 : 1;
  for (double& element : x) element = c.data == CaseValues::kEqual ? 0.5 : as_f32(away_from_zero(element) * size);
  for (size_t i = 0; i < targets.size(); ++i) {
    double& target = targets.flat(i);
    // Half of the pairs are alike, so that margins matter.
    for (size_t k = 0; c.data != CaseValues::kEqual && k < D && draft.random.below(2) == 0; ++k)
      x.flat((2 * i + 1) * D + k) = as_f32(x.flat(2 * i * D + k) * 0.75 + x.flat((2 * i + 1) * D + k) * 0.5);
    if (static_cast<Kind>(loss.kind) == Kind::kCosine) target = draft.random.below(2) == 0 ? 1 : -1;
    const bool sometimes = c.data == CaseValues::kPlain && draft.random.below(4) == 0;
    const bool is_edge = is_near_an_edge(loss, Reference(loss, x, targets).cosine(2 * i, 2 * i + 1));
    if (sometimes || is_edge || c.data == CaseValues::kAllIgnored) target = std::nan("");
    draft.data.scalars.step_labelled += !std::isnan(target);
  }
  if (c.is_non_finite()) x.flat(x.size() / 2) = not_finite(c);
}
void fit_data(CaseDraft& draft) { draft.c.pass == Pass::kBackward ? fit<Backward>(draft) : fit<Evaluate>(draft); }

// ---- results ----

void expect(Oracle& o) {
  const auto& loss = o.c.as<PairLossAttribute>();
  if (o.c.is_non_finite()) {
    o.out.only_skip = true;
    if (o.c.pass == Pass::kBackward) o.out.scalars.skip = 1;
    return;
  }
  if (o.c.pass == Pass::kEvaluate) {
    const All all = Reference(loss, o.value(Evaluate::kX), o.value(Evaluate::kLabels)).judge();
    const double terms = terms_of(o.c, Evaluate::kX);
    o.out.loss_sum = number(o.data.scalars.loss_sum + all.loss, all.magnitude, terms);
    o.out.scalars.labelled += all.labelled;
    o.out.scalars.correct += all.correct;
    o.out.margin = all.margin / (ref::kSafety * ref::kRounding * std::sqrt(terms));
    return;
  }
  const All all = Reference(loss, o.value(Backward::kX), o.value(Backward::kLabels)).judge();
  const auto step = static_cast<double>(o.data.scalars.step_labelled);
  o.expect(Backward::kDx, {all.dx / step, all.sizes / step, terms_of(o.c, Backward::kX)});
  o.out.loss_sum = number(o.data.scalars.loss_sum + all.loss / step, all.magnitude / step, terms_of(o.c, Backward::kX));
}

// ---- slope ----

Differentiable differentiable(const KernelCase& c, CaseData& data) {
  return {{data.values[Backward::kX]}, {Backward::kDx}, [&c, &data](const auto& at) {
            return Reference(c.as<PairLossAttribute>(), at[0], data.values[Backward::kLabels]).judge().loss /
                   static_cast<double>(data.scalars.step_labelled);
          }};
}

// By hand. Of two pairs that stand at right angles each first has the cosines 1 and 0.
std::vector<KnownValue> known_values() {
  const auto of = [](const PairLossAttribute& loss, std::vector<double> x, std::vector<double> targets) {
    const Array rows = xt::adapt(x, std::vector<size_t>{x.size() / 2, 2}),
                wanted = xt::adapt(targets, std::vector<size_t>{targets.size()});
    return Array{Reference(loss, rows, wanted).judge().loss};
  };
  const std::vector<double> right = {3, 0, 5, 0, 0, 2, 0, 7}, crossed = {3, 0, 0, 7, 0, 2, 5, 0};
  return {{"two pairs told apart", of(contrast_of(0.5f), right, {1, 1}), Array{2 * std::log1p(std::exp(-2))}, 1e-14},
          {"two pairs taken for each other", of(contrast_of(0.5f, true), crossed, {1, 1}), Array{2 * std::log1p(std::exp(2))},
           1e-14},
          {"one pair that is one", of(contrast_of(0.5f), right, {1, std::nan("")}), Array{0.0}, 1e-15},
          {"alike and wanted so", of(cosine_of(0.25f), {1, 1, 2, 2}, {1}), Array{0.0}, 1e-15},
          {"alike and not wanted so", of(cosine_of(0.25f), {1, 1, 2, 2}, {-1}), Array{0.75}, 1e-15},
          {"apart beyond the margin", of(cosine_of(0.25f), {1, 0, 0, 2}, {-1}), Array{0.0}, 1e-15},
          {"half as alike as wanted", of(kSimilarity, {1, 0, 1, std::sqrt(3.0)}, {1}), Array{0.25}, 1e-14}};
}

// ---- wrong kernels ----

template <void (*kChange)(PairLossInputOf<float>&)>
Status changed(const KernelContext& k, const PairLossBackwardArgsOf<float>& a) {
  PairLossBackwardArgsOf<float> other = a;
  kChange(other.in);
  return cpu_pair_loss_backward(k, other);
}
void is_sharper(PairLossInputOf<float>& in) { in.loss.temperature *= 0.5f; }
void looks_one_way(PairLossInputOf<float>& in) { in.loss.symmetric = 0; }
void has_no_margin(PairLossInputOf<float>& in) { in.loss.margin = 0; }
void swaps_the_kinds(PairLossInputOf<float>& in) {
  if (in.loss.kind != static_cast<uint32_t>(Kind::kContrast)) in.loss = {in.loss.kind == 1 ? 2u : 1u};
}

Status divides_by_its_own_pairs(const KernelContext& k, const PairLossBackwardArgsOf<float>& a) {
  const uint64_t labelled = a.scalars->step_labelled;
  a.scalars->step_labelled = a.in.B;
  const Status status = cpu_pair_loss_backward(k, a);
  a.scalars->step_labelled = labelled;
  return status;
}
// Leaves a part of each slope that only makes the vector longer.
Status slopes_along_the_vector(const KernelContext& k, const PairLossBackwardArgsOf<float>& a) {
  const Status status = cpu_pair_loss_backward(k, a);
  for (uint64_t i = 0; i < 2 * a.in.B * a.in.D; ++i) a.dx[i] += 1e-3f * a.in.x[i];
  return status;
}
Status exchanges_the_sides(const KernelContext& k, const PairLossBackwardArgsOf<float>& a) {
  const Status status = cpu_pair_loss_backward(k, a);
  for (uint64_t i = 0; i < a.in.B; ++i)
    std::swap_ranges(a.dx + 2 * i * a.in.D, a.dx + (2 * i + 1) * a.in.D, a.dx + (2 * i + 1) * a.in.D);
  return status;
}
Status counts_every_pair(const KernelContext& k, const PairLossEvaluateArgsOf<float>& a) {
  const uint64_t labelled = a.scalars->labelled;
  const Status status = cpu_pair_loss_evaluate(k, a);
  a.scalars->labelled = labelled + a.in.B;
  return status;
}
constexpr WrongKernel kWrongKernels[] = {
    wrong_kernel<Backward, changed<is_sharper>>("pair_loss_is_sharper"),
    wrong_kernel<Backward, changed<looks_one_way>>("pair_loss_looks_one_way"),
    wrong_kernel<Backward, changed<has_no_margin>>("pair_loss_has_no_margin"),
    wrong_kernel<Backward, changed<swaps_the_kinds>>("pair_loss_swaps_the_kinds"),
    wrong_kernel<Backward, divides_by_its_own_pairs>("pair_loss_divides_by_its_own_pairs"),
    wrong_kernel<Backward, slopes_along_the_vector>("pair_loss_slopes_along_the_vector"),
    wrong_kernel<Backward, exchanges_the_sides>("pair_loss_exchanges_the_sides"),
    wrong_kernel<Evaluate, counts_every_pair>("pair_loss_counts_every_pair"),
};

constexpr Op kFamilyOps[] = {Op::kPairLoss};

}  // namespace

extern constinit const OpFamily kPairLossFamily = {.ops = kFamilyOps,
                                                   .multiplies = true,
                                                   .add_cases = add_cases,
                                                   .fit_data = fit_data,
                                                   .expect = expect,
                                                   .differentiable = differentiable,
                                                   .known_values = known_values,
                                                   .wrong_kernels = kWrongKernels};

}  // namespace reprise::test
