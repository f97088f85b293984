// Losses of pairs: cases, data, reference and gradient check. The reference computes pair by pair,
// as the papers do, with the C library's exp and log.
#include <bit>
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
  // Smallest distance of a pair's cosine from the value at which `correct` would change.
  double margin = std::numeric_limits<double>::infinity();
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

  double cosine(size_t first, size_t second) const {  // `first` and `second` are rows of x
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

  // Returns the indices of the two inputs of a pair, which the pair's target encodes. The f32 bits
  // of the target are the bits of 2.0 plus two fields of 14 bits.
  static std::pair<uint32_t, uint32_t> numbers(double target) {
    const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(target)) - 0x40000000u;
    return {bits >> 14, bits & 0x3fffu};
  }
  // True if row `first` of one pair and row `second` of another pair count as equal, so that a
  // contrast must skip them. This is so if the pairs have the same first input or the same second
  // input, or if the two rows are the same input.
  bool are_equal(size_t first, size_t second) const {
    const double a = targets_.flat(first / 2), b = targets_.flat(second / 2);
    if (!(a >= 2) || !(b >= 2)) return false;
    return numbers(a).first == numbers(b).first || numbers(a).second == numbers(b).second ||
           numbers(a).first == numbers(b).second;
  }

  // Adds `slope`, a derivative with respect to the cosine of two rows, to the gradients of both
  // rows by the chain rule.
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

  // Adds the loss of pair `v` in contrast to the other pairs: cross-entropy over the cosines of the
  // pair's first vector with all second vectors. If `transposed`, over the cosines of its second
  // vector with all first vectors.
  void add_contrast(size_t v, bool transposed, All& all) const {
    const double temperature = static_cast<double>(loss_.temperature), share = loss_.symmetric != 0 ? 0.5 : 1;
    std::vector<double> logits(pairs_.size());
    const auto rows = [&](size_t w) {
      return std::pair(2 * pairs_[transposed ? w : v], 2 * pairs_[transposed ? v : w] + 1);
    };
    double maximum = -std::numeric_limits<double>::infinity(), sum = 0, others = maximum;
    for (size_t w = 0; w < pairs_.size(); ++w) {
      logits[w] = cosine(rows(w).first, rows(w).second) / temperature;
      if (w != v && are_equal(rows(w).first, rows(w).second)) {
        logits[w] = -std::numeric_limits<double>::infinity();
        continue;
      }
      maximum = std::max(maximum, logits[w]);
      if (w != v) others = std::max(others, logits[w]);
    }
    for (const double logit : logits) sum += std::exp(logit - maximum);
    all.loss += share * (maximum - logits[v] + std::log(sum));
    all.magnitude += share * (2 / temperature + 1);
    // True if no earlier pair has a logit as large as the pair's own.
    const bool is_first = std::none_of(logits.begin(), logits.begin() + static_cast<long>(v),
                                       [&](double logit) { return logit >= logits[v]; });
    if (!transposed) all.correct += is_first && logits[v] == maximum;
    if (!transposed && logits[v] != others)
      all.margin = std::min(all.margin, std::abs(logits[v] - others) * temperature);
    for (size_t w = 0; w < pairs_.size(); ++w) {
      if (std::isinf(logits[w])) continue;
      const double p = std::exp(logits[w] - maximum) / sum;
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
  std::vector<size_t> pairs_;  // indices of the pairs that have a target
};

// Returns the number of roundings in a cosine, a sum over pairs, and the result for one pair.
double terms_of(const KernelCase& c, uint32_t x) {
  return static_cast<double>(c.tensor(x).shape[0]) + 2.0 * c.tensor(x).shape[1] + 16;
}

// ---- cases ----

PairLossAttribute contrast_of(float temperature, bool symmetric = false) {
  return {static_cast<uint32_t>(Kind::kContrast), temperature, symmetric ? 1u : 0u};
}
PairLossAttribute cosine_of(float margin) { return {static_cast<uint32_t>(Kind::kCosine), 0, 0, margin}; }
constexpr PairLossAttribute kSimilarity = {static_cast<uint32_t>(Kind::kSimilarity)};

constexpr const char* kRepeated = "_repeated";  // suffix of the cases in which pairs have inputs in common

void add_pairs(CaseTable& table, const PairLossAttribute& loss, uint32_t B, uint32_t D, CaseValues data,
               const std::string& name, uint32_t others = 0) {
  static constexpr const char* kWords[] = {"contrast", "cosine", "similarity"};
  const auto x = shaped({2 * B, D}), s = scalars_tensor(), targets = shaped({B});
  const std::string tag = std::string(kWords[loss.kind]) + "_" + str(B) + "_" + str(D) + name;
  const auto set = [&](KernelCase& c) { c.data = data, c.other_labels = others; };
  set(table.add<Backward>(
      tag, {{Backward::kDx, x}, {Backward::kScalars, s}, {Backward::kX, x}, {Backward::kLabels, targets}}, loss));
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
  for (const bool symmetric : {false, true}) {
    const std::string tag = std::string(symmetric ? "_symmetric" : "") + kRepeated;
    add_pairs(table, contrast_of(0.5f, symmetric), 20, 12, CaseValues::kAllLabelled, tag);
    add_pairs(table, contrast_of(0.25f, symmetric), 90, 33, CaseValues::kPlain, "_some_missing" + tag, 5);
    add_pairs(table, contrast_of(0.5f, symmetric), 2, 3, CaseValues::kAllLabelled, "_two" + tag);
  }
  add_pairs(table, contrast_of(0.03125f, true), 24, 48, CaseValues::kAllLabelled, "_sharp");
  add_pairs(table, cosine_of(-0.5f), 30, 3, CaseValues::kAllLabelled, "_far");
  add_pairs(table, contrast_of(0.5f), 2, 600, CaseValues::kAllLabelled, "_wide");
}

// ---- data ----

// True if the cosine is near a kink of the loss, or near the value at which `correct` changes. The
// caller then removes the pair's target.
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
    // Moves leading elements of the second vector towards the first vector: a random number of
    // elements, which is 0 in about half of the pairs. So cosines are on both sides of the margin.
    for (size_t k = 0; c.data != CaseValues::kEqual && k < D && draft.random.below(2) == 0; ++k)
      x.flat((2 * i + 1) * D + k) = as_f32(x.flat(2 * i * D + k) * 0.75 + x.flat((2 * i + 1) * D + k) * 0.5);
    if (static_cast<Kind>(loss.kind) == Kind::kCosine) target = draft.random.below(2) == 0 ? 1 : -1;
    const bool sometimes = c.data == CaseValues::kPlain && draft.random.below(4) == 0;
    const bool is_edge = is_near_an_edge(loss, Reference(loss, x, targets).cosine(2 * i, 2 * i + 1));
    if (sometimes || is_edge || c.data == CaseValues::kAllIgnored) target = std::nan("");
    draft.data.scalars.step_labelled += !std::isnan(target);
    const bool is_repeated =
        c.id.find(kRepeated) != std::string::npos && !std::isnan(target) && draft.random.below(5) != 0;
    // There are few different inputs. So pairs have inputs in common, and the first input of one
    // pair may be the second input of another pair.
    const auto input = [&] { return static_cast<uint32_t>(draft.random.below(targets.size())); };
    if (is_repeated) target = static_cast<double>(std::bit_cast<float>(0x40000000u | input() << 14 | input()));
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

// ---- gradient check ----

Differentiable differentiable(const KernelCase& c, CaseData& data) {
  return {{data.values[Backward::kX]}, {Backward::kDx}, [&c, &data](const auto& at) {
            return Reference(c.as<PairLossAttribute>(), at[0], data.values[Backward::kLabels]).judge().loss /
                   static_cast<double>(data.scalars.step_labelled);
          }};
}

// Returns values computed by hand. The two pairs are at right angles, so each first vector has the
// cosines 1 and 0 with the second vectors.
std::vector<KnownValue> known_values() {
  const auto of = [](const PairLossAttribute& loss, std::vector<double> x, std::vector<double> targets) {
    const Array rows = xt::adapt(x, std::vector<size_t>{x.size() / 2, 2}),
                wanted = xt::adapt(targets, std::vector<size_t>{targets.size()});
    return Array{Reference(loss, rows, wanted).judge().loss};
  };
  const std::vector<double> right = {3, 0, 5, 0, 0, 2, 0, 7}, crossed = {3, 0, 0, 7, 0, 2, 5, 0};
  return {{"two pairs told apart", of(contrast_of(0.5f), right, {1, 1}), Array{2 * std::log1p(std::exp(-2))}, 1e-14},
          {"two pairs taken for each other", of(contrast_of(0.5f, true), crossed, {1, 1}),
           Array{2 * std::log1p(std::exp(2))}, 1e-14},
          {"one pair that is one", of(contrast_of(0.5f), right, {1, std::nan("")}), Array{0.0}, 1e-15},
          {"two pairs of one first", of(contrast_of(0.5f), right, {2 + 2 * 0x1p-22, 2 + 3 * 0x1p-22}), Array{0.0},
           1e-15},
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

Status takes_equal_ones_for_negatives(const KernelContext& k, const PairLossBackwardArgsOf<float>& a) {
  std::vector<float> targets(a.in.targets, a.in.targets + a.in.B);
  for (float& target : targets)
    target = target >= 2.0f && a.in.loss.kind == static_cast<uint32_t>(Kind::kContrast) ? 1.0f : target;
  PairLossBackwardArgsOf<float> other = a;
  other.in.targets = targets.data();
  return cpu_pair_loss_backward(k, other);
}
Status divides_by_its_own_pairs(const KernelContext& k, const PairLossBackwardArgsOf<float>& a) {
  const uint64_t labelled = a.scalars->step_labelled;
  a.scalars->step_labelled = a.in.B;
  const Status status = cpu_pair_loss_backward(k, a);
  a.scalars->step_labelled = labelled;
  return status;
}
// Adds a part along the vector itself to each gradient, which is wrong: the cosine does not depend
// on the length.
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
    wrong_kernel<Backward, takes_equal_ones_for_negatives>("pair_loss_takes_equal_ones_for_negatives"),
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
