// The loss head, which is softmax cross-entropy over a linear layer: cases, data, reference and
// gradient check.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "cuda/loss/loss_head_rules.h"
#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/op_family.h"
#include "tests/ref/linear.h"

namespace reprise::test {
namespace {

using namespace ref;

// ---- the reference: computes the whole matrix of logits ----

struct LossHead {
  Array p;                  // [M,V] softmax
  Array slopes;             // [M,V]: derivatives of the capped logits
  Array row_loss;           // [M]; 0 for a row without a label
  Array sharpness;          // [M]: 1 + |lse| + the largest |x||w| + |b| of the row
  double sum = 0;           // sum of row_loss
  double sum_magnitude = 0;
  uint64_t labelled = 0, correct = 0;
  // Smallest difference between the two largest logits of a row, divided by the row's sharpness.
  double smallest_margin = std::numeric_limits<double>::infinity();
};

LossHead loss_head(const Array& x, const Array& w, const Array* bias, const Array& labels, double softcap) {
  Array logits_out = linear_forward(x, w, bias, false);
  Array slopes(logits_out.shape(), 1.0);
  for (size_t i = 0; softcap > 0 && i < logits_out.size(); ++i) {
    const double bent = std::tanh(logits_out.flat(i) / softcap);
    logits_out.flat(i) = softcap * bent;
    slopes.flat(i) = 1 - bent * bent;
  }
  const Array absolute_bias = bias != nullptr ? magnitudes(*bias) : Array();
  const Array sizes_out =
      linear_forward(magnitudes(x), magnitudes(w), bias != nullptr ? &absolute_bias : nullptr, false);
  const auto logits = view<2>(std::as_const(logits_out)), sizes = view<2>(sizes_out);
  const size_t M = logits.shape(0), V = logits.shape(1);
  LossHead out;
  out.p = zeros({M, V});
  out.slopes = slopes;
  out.row_loss = out.sharpness = zeros({M});
  for (size_t m = 0; m < M; ++m) {
    size_t best = 0;
    for (size_t v = 1; v < V; ++v) best = logits(m, v) > logits(m, best) ? v : best;
    double sum = 0, size = 0, second = -std::numeric_limits<double>::infinity();
    for (size_t v = 0; v < V; ++v) {
      sum += std::exp(logits(m, v) - logits(m, best));
      size = std::max(size, sizes(m, v));
      if (v != best) second = std::max(second, logits(m, v));
    }
    const double lse = logits(m, best) + std::log(sum);
    for (size_t v = 0; v < V; ++v) out.p(m, v) = std::exp(logits(m, v) - lse);
    out.sharpness(m) = 1 + size + std::abs(lse);
    if (labels(m) == kIgnoredLabel) continue;
    const auto label = static_cast<size_t>(labels(m));
    out.row_loss(m) = lse - logits(m, label);
    out.sum += out.row_loss(m);
    out.sum_magnitude += out.sharpness(m);
    out.labelled += 1;
    out.correct += best == label;
    if (size > 0) out.smallest_margin = std::min(out.smallest_margin, (logits(m, best) - second) / out.sharpness(m));
  }
  return out;
}

struct LossHeadGradients {
  Array dx, dw, db;
  Array dx_magnitude, dw_magnitude, db_magnitude;
  Array dx_rounded, dw_rounded, db_rounded;  // for each sum: the square root of the sum of its terms' squares
};

// Returns the gradients. `row_weights` [M] replaces the factor 1 / step_labelled of each row; if it
// is null, the factor is used.
LossHeadGradients loss_head_backward(const Array& x, const Array& w, const Array* bias, const Array& labels,
                                     const Array* row_weights, double step_labelled, double softcap) {
  const LossHead head = loss_head(x, w, bias, labels, softcap);
  Array d = zeros_like(head.p), size = zeros_like(head.p);
  for (size_t m = 0; m < d.shape(0); ++m) {
    if (labels(m) == kIgnoredLabel) continue;
    const double share = row_weights != nullptr ? row_weights->flat(m) : 1.0 / step_labelled;
    for (size_t v = 0; v < d.shape(1); ++v) {
      const double target = v == static_cast<size_t>(labels(m)) ? 1.0 : 0.0;
      d(m, v) = (head.p(m, v) - target) * share * head.slopes(m, v);
      size(m, v) = (head.p(m, v) * head.sharpness(m) + target) * std::abs(share);
    }
  }
  return {product(d, w),
          product(transposed(d), x),
          xt::sum(d, {0}),
          product(size, magnitudes(w)),
          product(transposed(size), magnitudes(x)),
          xt::sum(size, {0}),
          xt::sqrt(product(d * d, w * w)),
          xt::sqrt(product(transposed(d * d), x * x)),
          xt::sqrt(xt::sum(d * d, {0}))};
}

// ---- cases ----

// Adds cases of one shape. If `once`, adds only one backward, because the shape is large.
void add_loss_head(CaseTable& table, uint32_t M, uint32_t C, uint32_t V, CaseValues data, const char* name,
                   uint32_t other_labels = 0, float softcap = 0, bool once = false) {
  const CapAttribute cap{softcap};
  const auto x = shaped({M, C}), w = shaped({V, C}), b = shaped({V}), labels = shaped({M}, DType::kI32),
             s = scalars_tensor();
  const std::string tag = "m" + str(M) + "_c" + str(C) + "_v" + str(V) + name;
  const uint64_t work = uint64_t{M} * C * V;
  const auto set = [&](KernelCase& c, uint64_t multiply_adds) {
    c.data = data, c.other_labels = other_labels, c.multiply_adds = multiply_adds;
  };
  using Backward = LossHeadBackward;
  const auto add_backward = [&](const std::string& tag, const std::optional<Tensor>& dw,
                                const std::optional<Tensor>& db, const std::optional<Tensor>& bias) {
    using A = Backward;
    set(table.add<A>(tag,
                     {{A::kDx, x},
                      {A::kDw, dw},
                      {A::kDb, db},
                      {A::kScalars, s},
                      {A::kX, x},
                      {A::kW, w},
                      {A::kB, bias},
                      {A::kLabels, labels}},
                     cap),
        3 * work);
  };
  const auto add_forward = [&](const std::string& tag, const std::optional<Tensor>& bias) {
    using A = LossHeadForward;
    set(table.add<A>(
            tag, {{A::kLosses, shaped({M}, DType::kF64)}, {A::kX, x}, {A::kW, w}, {A::kB, bias}, {A::kLabels, labels}},
            cap),
        work);
  };
  const auto add_weighted = [&](const std::string& tag, const std::optional<Tensor>& dw,
                                const std::optional<Tensor>& db) {
    using A = Backward;
    set(table.add<A>(tag,
                     {{A::kDx, x},
                      {A::kDw, dw},
                      {A::kDb, db},
                      {A::kScalars, s},
                      {A::kX, x},
                      {A::kW, w},
                      {A::kB, b},
                      {A::kLabels, labels},
                      {A::kRowWeights, shaped({M})}},
                     cap),
        3 * work);
  };
  const auto add_evaluate = [&](const std::string& tag, const std::optional<Tensor>& bias) {
    using A = LossHeadEvaluate;
    set(table.add<A>(tag, {{A::kScalars, s}, {A::kX, x}, {A::kW, w}, {A::kB, bias}, {A::kLabels, labels}}, cap), work);
  };
  add_backward(tag, w, b, b);
  if (once) return;
  table.again_accumulating({Backward::kDw, Backward::kDb});
  add_evaluate(tag, b);
  if (table.is_bench()) return;
  // Passes with row weights are not tested with losses that are not finite. The weights are
  // computed from the losses of the forward, so such a loss has been detected before.
  const bool is_finite = data != CaseValues::kNonFinite && data != CaseValues::kNaN;
  if (is_finite) {
    add_forward(tag, b);
    add_weighted(tag + "_weighted", w, b);
    table.again_accumulating({Backward::kDw, Backward::kDb});
    add_weighted(tag + "_weighted_frozen", {}, {});
  }
  add_backward(tag + "_no_bias", w, {}, {});
  table.again_accumulating({Backward::kDw});
  add_backward(tag + "_frozen", {}, {}, b);
  add_evaluate(tag + "_no_bias", {});
}

void add_cases(CaseTable& table) {
  if (table.is_bench()) return add_loss_head(table, 512, 768, 8192, CaseValues::kAllLabelled, "");
  add_loss_head(table, 1, 1, 1, CaseValues::kAllLabelled, "");
  add_loss_head(table, 5, 7, 3, CaseValues::kAllLabelled, "");
  add_loss_head(table, 33, 17, 10, CaseValues::kPlain, "_some_ignored");
  add_loss_head(table, 67, 12, 131, CaseValues::kPlain, "_one_of_several", 200);
  add_loss_head(table, 9, 40, 1003, CaseValues::kPlain, "");
  add_loss_head(table, 300, 8, 19, CaseValues::kAllLabelled, "", 1);
  add_loss_head(table, 7, 5, 2500, CaseValues::kPlain, "", 9);
  add_loss_head(table, 1500, 6, 70, CaseValues::kPlain, "");
  add_loss_head(table, 4, 300, 16, CaseValues::kAllLabelled, "");
  add_loss_head(table, 40, 5, 1, CaseValues::kPlain, "");  // one class: the loss is zero
  add_loss_head(table, 12, 24, 33, CaseValues::kLarge, "_large");
  add_loss_head(table, 33, 17, 10, CaseValues::kPlain, "_capped", 0, 1.5f);
  add_loss_head(table, 67, 12, 131, CaseValues::kPlain, "_capped", 30, 3);
  add_loss_head(table, 9, 40, 1003, CaseValues::kAllLabelled, "_capped", 0, 0.5f);
  add_loss_head(table, 12, 24, 33, CaseValues::kLarge, "_large_capped", 0, 30);
  add_loss_head(table, 1500, 6, 70, CaseValues::kPlain, "_capped", 0, 2, true);
  add_loss_head(table, 6, 4, 5, CaseValues::kAllIgnored, "_all_ignored", 5);
  add_loss_head(table, 13, 4, 5, CaseValues::kEqual, "_equal_logits");
  add_loss_head(table, 11, 6, 7, CaseValues::kBadLow, "_bad_low");
  add_loss_head(table, 150, 6, 7, CaseValues::kBadHigh, "_bad_high");
  add_loss_head(table, 11, 6, 7, CaseValues::kNonFinite, "_non_finite");
  add_loss_head(table, 11, 6, 7, CaseValues::kNaN, "_nan");
  add_loss_head(table, 19, 416, 45, CaseValues::kPlain, "");
  add_loss_head(table, 5, 512, 21, CaseValues::kPlain, "");
  add_loss_head(table, 131, 64, 137, CaseValues::kPlain, "_beyond_tiles",
                40);  // on tensor cores: 3 rows and 9 classes more than a tile
  add_loss_head(table, 3, 16, 1032, CaseValues::kPlain, "", 300);  // dx is computed in several parts
  // More than 1024 classes, so that CUDA uses a block of several warps for each row. The last pack
  // of a row is nearly empty.
  add_loss_head(table, 20, 8, 1025, CaseValues::kPlain, "_capped", 0, 1);
  add_loss_head(table, 2050, 8, 3, CaseValues::kPlain, "");                // two chunks of rows
  // One row and one class more than whole CUDA tiles, and one row and one class fewer.
  add_loss_head(table, 129, 16, 257, CaseValues::kPlain, "");
  add_loss_head(table, 127, 8, 255, CaseValues::kPlain, "");
  add_loss_head(table, 2, 4096, 5, CaseValues::kAllLabelled, "", 0, 0, true);  // wide rows (ptx_large_test.cpp)
  add_loss_head(table, 129, 386, 129, CaseValues::kPlain, "", 0, 0, true);  // large tiles, without tensor cores
  for (const char* tag : {"m33_c17_v10", "m67_c12_v131", "m19_c416_v45", "m5_c512_v21"})
    table.again_with_weights(tag, kEveryWeight);
}

// ---- data ----

template <typename K>
void fit_values(CaseDraft& draft) {
  Array &x = draft.value(K::kX), &w = draft.value(K::kW);
  if (draft.c.data == CaseValues::kLarge) {
    for (double& element : x) element *= 8;
    for (double& element : w) element *= 4;
  }
  if (draft.c.data == CaseValues::kEqual) {
    w.fill(0.0);
    if (draft.c.has(K::kB)) draft.value(K::kB).fill(0.5);
  }
  if (draft.c.is_non_finite()) x.flat(x.size() / 2) = not_finite(draft.c);
}

template <typename K>
void fit_labels(CaseDraft& draft) {
  const KernelCase& c = draft.c;
  Array& labels = draft.value(K::kLabels);
  const uint32_t V = c.tensor(K::kW).shape[0];
  for (double& label : labels) {
    label = static_cast<double>(draft.random.below(V));
    const bool sometimes = c.data == CaseValues::kPlain && draft.random.below(3) == 0;
    if (sometimes || c.data == CaseValues::kAllIgnored) label = kIgnoredLabel;
  }
  if (c.data == CaseValues::kEqual) labels.flat(0) = 0;  // equal logits: the first class counts as the maximum
  for (const double label : labels) draft.data.scalars.step_labelled += label != kIgnoredLabel;
  if (!c.expects_bad_index()) return;
  draft.data.bad_data = DataFault::kLabel;
  draft.data.bad_position = labels.size() * 2 / 3;
  labels.flat(draft.data.bad_position) = c.data == CaseValues::kBadLow ? -1.0 : V;
}

template <typename K>
void fit(CaseDraft& draft) {
  fit_values<K>(draft);
  fit_labels<K>(draft);
}
// Sets the data of all passes. Weights of rows have either sign, and some are 0.
void fit_data(CaseDraft& draft) {
  if (draft.c.pass == Pass::kForward) return fit<LossHeadForward>(draft);
  if (draft.c.pass == Pass::kEvaluate) return fit<LossHeadEvaluate>(draft);
  fit<LossHeadBackward>(draft);
  if (!draft.c.has(LossHeadBackward::kRowWeights)) return;
  for (double& weight : draft.value(LossHeadBackward::kRowWeights)) weight = draft.random.below(4) == 0 ? 0 : weight;
}

// ---- results ----

uint32_t weights_of(const KernelCase& c) {
  if (c.pass == Pass::kForward) return LossHeadForward::kW;
  return c.pass == Pass::kEvaluate ? uint32_t{LossHeadEvaluate::kW} : uint32_t{LossHeadBackward::kW};
}
// True if the number of channels is even, so that a CPU can multiply them in pairs of bf16.
bool has_even_depth(const KernelCase& c) { return c.tensor(weights_of(c)).last_dimension() % 2 == 0; }

void expect_backward(Oracle& o) {
  using A = LossHeadBackward;
  const auto step_labelled = static_cast<double>(o.data.scalars.step_labelled);
  const Array &x = o.value(A::kX), &w = o.value(A::kW), &labels = o.value(A::kLabels);
  const double softcap = static_cast<double>(o.c.as<CapAttribute>().softcap);
  const LossHead head = loss_head(x, w, o.optional(A::kB), labels, softcap);
  const LossHeadGradients g =
      loss_head_backward(x, w, o.optional(A::kB), labels, o.optional(A::kRowWeights), step_labelled, softcap);
  const double M = o.dimension(A::kX, 0), C = o.dimension(A::kX, 1), V = o.dimension(A::kW, 0);
  // If a kernel multiplies bf16, it rounds the gradients of the logits to bf16, because they are an
  // operand of the products that give dx and dw.
  const Multiplier& multiplier = o.data.multiplier;
  const bool rounds =
      multiplier.pairs != nullptr
          ? has_even_depth(o.c)
          : multiplier.tensor_cores && loss_head_uses_mma(DType::kBf16, o.c.tensor(A::kX).last_dimension());
  const auto if_rounded = [&](const Array& rounded) { return rounds ? rounded : Array(Array::shape_type{0}); };
  const auto as_operand = [&](const Array& rounded) -> Array {
    return multiplier.math == ProductMath::kF32 ? if_rounded(rounded)
                                                : Array(rounded * (operand_rounding(multiplier.math) / 0x1p-8));
  };
  o.expect(A::kDx, {g.dx, g.dx_magnitude, C + V + 4, as_operand(g.dx_rounded)});
  o.expect(A::kDw, {g.dw, g.dw_magnitude, C + V + M + 4, as_operand(g.dw_rounded)});
  o.expect(A::kDb, {g.db, g.db_magnitude, C + V + M + 4, if_rounded(g.db_rounded)});
  if (o.c.has(A::kRowWeights)) return;
  o.out.loss_sum =
      number(o.data.scalars.loss_sum + head.sum / step_labelled, head.sum_magnitude / step_labelled, C + V + M + 4);
}

void expect_forward(Oracle& o) {
  using A = LossHeadForward;
  const LossHead head = loss_head(o.value(A::kX), o.value(A::kW), o.optional(A::kB), o.value(A::kLabels),
                                  static_cast<double>(o.c.as<CapAttribute>().softcap));
  o.expect(A::kLosses, {head.row_loss, head.sharpness, o.dimension(A::kX, 1) + o.dimension(A::kW, 0) + 4});
}

void expect_evaluate(Oracle& o) {
  using A = LossHeadEvaluate;
  const LossHead head = loss_head(o.value(A::kX), o.value(A::kW), o.optional(A::kB), o.value(A::kLabels),
                                  static_cast<double>(o.c.as<CapAttribute>().softcap));
  const double M = o.dimension(A::kX, 0), C = o.dimension(A::kX, 1), V = o.dimension(A::kW, 0);
  o.out.loss_sum = number(o.data.scalars.loss_sum + head.sum, head.sum_magnitude, C + V + M + 4);
  o.out.scalars.labelled += head.labelled;
  o.out.scalars.correct += head.correct;
  // If all logits are equal, the first class counts as the maximum. So the count does not depend on
  // rounding, and needs no margin.
  if (o.c.data != CaseValues::kEqual && o.c.as<CapAttribute>().softcap == 0)
    o.out.margin = head.smallest_margin / (kSafety * kRounding * std::sqrt(C + 1.0));
}

// Expects a loss that is not finite. A training must then set scalars.skip; an evaluation must not.
void expect_only_skip(Oracle& o) {
  o.out.only_skip = true;
  if (o.c.pass == Pass::kBackward) o.out.scalars.skip = 1;
}

void expect(Oracle& o) {
  if (o.c.is_non_finite()) return expect_only_skip(o);
  if (o.c.pass == Pass::kForward) return expect_forward(o);
  o.c.pass == Pass::kBackward ? expect_backward(o) : expect_evaluate(o);
}

std::vector<uint32_t> rounded_weights(const KernelCase& c, const CpuMachine&) {
  if (!has_even_depth(c)) return {};
  return {weights_of(c)};
}

std::optional<std::vector<uint32_t>> tensor_operands(const KernelCase& c) {
  const uint32_t x = c.pass == Pass::kForward    ? uint32_t{LossHeadForward::kX}
                     : c.pass == Pass::kEvaluate ? uint32_t{LossHeadEvaluate::kX}
                                                 : uint32_t{LossHeadBackward::kX};
  if (c.tensor(x).last_dimension() % 4 != 0) return std::nullopt;
  return std::vector<uint32_t>{x, weights_of(c)};
}

// ---- gradient check ----

Differentiable differentiable(const KernelCase& c, CaseData& data) {
  using A = LossHeadBackward;
  const std::vector<Array>& v = data.values;
  Differentiable head{{v[A::kX], v[A::kW]},
                      {A::kDx, A::kDw},
                      [&, softcap = static_cast<double>(c.as<CapAttribute>().softcap)](const auto& at) {
                        const Array* bias = at.size() > 2 ? &at[2] : nullptr;
                        if (c.has(A::kRowWeights))
                          return dot(loss_head(at[0], at[1], bias, v[A::kLabels], softcap).row_loss, v[A::kRowWeights]);
                        return loss_head(at[0], at[1], bias, v[A::kLabels], softcap).sum /
                               static_cast<double>(data.scalars.step_labelled);
                      }};
  if (c.has(A::kB)) head.variables.push_back(v[A::kB]), head.outputs.push_back(A::kDb);
  return head;
}

std::vector<KnownValue> known_values() {
  const Array x = zeros({3, 2}), w = zeros({7, 2}), labels = {0.0, -100.0, 6.0};
  const LossHead head = loss_head(x, w, nullptr, labels, 0);
  return {{"the loss of equal logits is the log of the classes", Array{head.sum / 2}, Array{std::log(7.0)}, 1e-14},
          {"labelled rows", Array{static_cast<double>(head.labelled)}, Array{2.0}},
          {"correct rows: the first maximum is class 0", Array{static_cast<double>(head.correct)}, Array{1.0}}};
}

// ---- wrong kernels ----

constexpr WrongKernel kWrongKernels[] = {
    wrong_kernel<LossHeadBackward, [](const KernelContext& k, const LossHeadBackwardArgsOf<float>& a) {
      LossHeadBackwardArgsOf<float> plain = a;
      plain.in.softcap = 0;
      return cpu_loss_head_backward(k, plain);
    }>("loss_head_caps_nothing"),
    wrong_kernel<LossHeadEvaluate, [](const KernelContext& k, const LossHeadEvaluateArgsOf<float>& a) {
      LossHeadEvaluateArgsOf<float> plain = a;
      plain.in.softcap = 0;
      return cpu_loss_head_evaluate(k, plain);
    }>("loss_head_evaluates_without_its_cap"),
};

constexpr Op kFamilyOps[] = {Op::kLossHead};

}  // namespace

extern constinit const OpFamily kLossHeadFamily = {.ops = kFamilyOps,
                                                   .multiplies = true,
                                                   .add_cases = add_cases,
                                                   .fit_data = fit_data,
                                                   .expect = expect,
                                                   .differentiable = differentiable,
                                                   .rounded_weights = rounded_weights,
                                                   .tensor_operands = tensor_operands,
                                                   .known_values = known_values,
                                                   .wrong_kernels = kWrongKernels};

}  // namespace reprise::test
