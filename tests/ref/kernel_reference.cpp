// See kernel_reference.h: one function per op, with the number of terms that each output adds up.
// Here so that the oracles are compiled once for all tests.
// It must not know the kernels.
#include "tests/ref/kernel_reference.h"

#include <cmath>
#include <utility>

#include "tests/ref/attention.h"
#include "tests/ref/conv.h"
#include "tests/ref/elementwise.h"
#include "tests/ref/linear.h"
#include "tests/ref/loss_head.h"
#include "tests/ref/norm.h"
#include "tests/ref/random.h"

namespace reprise::test {
namespace {

Expected number(double value, double magnitude, double terms) {
  return {Array(Array::shape_type{1}, value), Array(Array::shape_type{1}, magnitude), terms};
}
// A result with one rounding per element.
Expected rounded(const Array& value) { return {value, ref::magnitudes(value), 1}; }
Expected exact(const Array& value) { return {value, ref::magnitudes(value), 0}; }

class Oracle {
 public:
  Oracle(const KernelCase& c, const CaseData& data) : case_(c), data_(data) {
    out_.outputs.resize(c.arguments.size());
    out_.scalars = data.scalars;
    out_.loss_sum = number(data.scalars.loss_sum, 0, 0);
    out_.gradient_norm = number(data.scalars.gradient_norm, 0, 0);
    out_.clip_factor = number(data.scalars.clip_factor, 0, 0);
  }

  CaseExpected answer() {
    overwrite();
    for (uint32_t i = 0; i < case_.arguments.size(); ++i) {
      if ((case_.accumulate >> i & 1u) == 0 || !case_.has(i)) continue;
      Expected& sum = out_.outputs[i];
      sum = {sum.value + value(i), sum.magnitude + xt::abs(value(i)), sum.terms + 1};
    }
    return std::move(out_);
  }

 private:
  const Array& value(uint32_t i) const { return data_.values[i]; }
  const Array* optional(uint32_t i) const { return case_.has(i) ? &data_.values[i] : nullptr; }
  void expect(uint32_t i, Expected e) {
    if (case_.has(i)) out_.outputs[i] = std::move(e);
  }
  double dimension(uint32_t argument, uint32_t d) const { return case_.tensor(argument).shape[d]; }

  void overwrite() {
    switch (case_.op) {
      case Op::kConv: return conv();
      case Op::kNormConv: return norm_conv();
      case Op::kBatchNorm: return batch_norm();
      case Op::kNormRelu: return batch_norm_backward(xt::where(normalised_input(3, 4) > 0.0, value(8), 0.0));
      case Op::kNormAddRelu: return norm_add_relu();
      case Op::kRelu: return relu();
      case Op::kAdd: return expect(0, rounded(value(1) + value(2)));
      case Op::kCopy:
      case Op::kMove: return expect(0, exact(value(1)));
      case Op::kMaxPool: return max_pool();
      case Op::kGlobalPool: return global_pool();
      case Op::kLinear: return linear();
      case Op::kLayerNorm: return layer_norm();
      case Op::kGelu: return gelu();
      case Op::kEmbedding: return embedding();
      case Op::kAttention: return attention();
      case Op::kDropout: return dropout();
      case Op::kLossHead: return case_.pass == Pass::kBackward ? loss_head_backward() : loss_head_evaluate();
      case Op::kGradNorm: return case_.pass == Pass::kReduce ? grad_norm_reduce() : grad_norm_finish();
      case Op::kSgd:
      case Op::kAdamW: return update();
      case Op::kTransfer: return;
    }
  }

  void conv() {
    const WindowAttribute& window = case_.window;
    const uint32_t first = case_.pass == Pass::kForward ? 3 : 1;
    const auto both = [&](double terms, const auto& f) {
      expect(0, {f(value(first), value(first + 1)), f(ref::magnitudes(value(first)), ref::magnitudes(value(first + 1))), terms});
    };
    const double taps = window.kernel_h * window.kernel_w;
    if (case_.pass == Pass::kForward) {
      return both(taps * dimension(first, 3), [&](const Array& x, const Array& w) { return ref::conv_forward(x, w, window); });
    }
    if (case_.pass == Pass::kBackwardData) {
      const Tensor& dx = case_.tensor(0);
      return both(taps * dimension(1, 3), [&](const Array& dy, const Array& w) {
        return ref::conv_backward_data(dy, w, dx.shape[1], dx.shape[2], window);
      });
    }
    both(dimension(2, 0) * dimension(2, 1) * dimension(2, 2),
         [&](const Array& x, const Array& dy) { return ref::conv_backward_weight(x, dy, window); });
  }

  // norm(x) of argument x, the four vectors beginning at argument `vectors`.
  Array normalised_input(uint32_t x, uint32_t vectors) const {
    return ref::batch_norm_forward(value(x), {value(vectors), value(vectors + 1)}, value(vectors + 2), value(vectors + 3));
  }
  Array normalised_input_magnitude(uint32_t x, uint32_t vectors) const {
    return ref::batch_norm_forward_magnitude(value(x), {value(vectors), value(vectors + 1)}, value(vectors + 2), value(vectors + 3));
  }

  // The error of a product is that of its sum, and that of a, which no cut makes larger. Four roundings make norm(x), so beside the
  // sum's roundings each term has as many as norm(x) has.
  void norm_conv() {
    const uint32_t in = case_.pass == Pass::kForward ? 3 : 1, other = in + 1;
    const Array a = xt::maximum(normalised_input(in, in + 2), 0.0), size = normalised_input_magnitude(in, in + 2);
    const auto both = [&](double terms, const auto& f) { expect(0, {f(a, value(other)), f(size, ref::magnitudes(value(other))), terms + 4}); };
    const WindowAttribute& window = case_.window;
    if (case_.pass == Pass::kForward) {
      return both(window.kernel_h * window.kernel_w * dimension(in, 3),
                  [&](const Array& x, const Array& w) { return ref::conv_forward(x, w, window); });
    }
    both(dimension(2, 0) * dimension(2, 1) * dimension(2, 2),
         [&](const Array& x, const Array& dy) { return ref::conv_backward_weight(x, dy, window); });
  }

  void norm_add_relu() {
    expect(0, {xt::maximum(normalised_input(1, 3) + value(2), 0.0), normalised_input_magnitude(1, 3) + xt::abs(value(2)), 5});
  }

  void batch_norm() {
    const double M = static_cast<double>(case_.norm.count), epsilon = case_.norm.epsilon;
    if (case_.pass == Pass::kStatistics) {
      const ExpectedStatistics statistics = expected_statistics(value(2), epsilon);
      expect(0, statistics.mean);
      expect(1, statistics.rstd);
    } else if (case_.pass == Pass::kRunning) {
      batch_norm_running(M, epsilon);
    } else if (case_.pass == Pass::kForward) {
      const ref::Moments moments{value(2), value(3)};
      expect(0, {ref::batch_norm_forward(value(1), moments, value(4), value(5)),
                 ref::batch_norm_forward_magnitude(value(1), moments, value(4), value(5)), 4});
    } else if (case_.pass == Pass::kInference) {
      const ref::Moments moments{value(2), 1.0 / xt::sqrt(value(3) + epsilon)};
      expect(0, {ref::batch_norm_forward(value(1), moments, value(4), value(5)),
                 ref::batch_norm_forward_magnitude(value(1), moments, value(4), value(5)), 6});
    } else {
      batch_norm_backward(value(7));
    }
  }
  void batch_norm_backward(const Array& dy) {
    const double M = static_cast<double>(case_.norm.count);
    const ref::Moments moments{value(4), value(5)};
    const ref::NormGradients g = ref::batch_norm_backward(value(3), moments, value(6), dy);
    const ref::NormGradients size = ref::batch_norm_backward_magnitude(value(3), moments, value(6), dy);
    expect(0, {g.dx, size.dx, M + 4});
    expect(1, {g.dgamma, size.dgamma, M});
    expect(2, {g.dbeta, size.dbeta, M});
  }
  void batch_norm_running(double M, double epsilon) {
    const double momentum = case_.norm.momentum, unbiased = M / (M - 1);
    const Array variance = 1.0 / xt::square(value(4));
    expect(0, {(1 - momentum) * value(0) + momentum * value(3),
               (1 - momentum) * xt::abs(value(0)) + momentum * xt::abs(value(3)), 3});
    expect(1, {(1 - momentum) * value(1) + momentum * unbiased * (variance - epsilon),
               (1 - momentum) * xt::abs(value(1)) + momentum * unbiased * (variance + epsilon), 6});
    expect(2, exact(value(2) + 1.0));
  }

  void relu() {
    if (case_.pass == Pass::kForward) return expect(0, exact(xt::maximum(value(1), 0.0)));
    expect(0, exact(xt::where(value(1) > 0.0, value(2), 0.0)));
  }

  void max_pool() {
    if (case_.pass == Pass::kForward) {
      const ref::Pooled pooled = ref::max_pool_forward(value(2), case_.window);
      expect(0, exact(pooled.y));
      return expect(1, exact(pooled.index));
    }
    const Tensor& dx = case_.tensor(0);
    const auto f = [&](const Array& dy) {
      return ref::max_pool_backward(value(1), dy, dx.shape[1], dx.shape[2], case_.window);
    };
    const double overlaps = case_.window.kernel_h * case_.window.kernel_w;
    expect(0, {f(value(2)), f(ref::magnitudes(value(2))), overlaps});
  }

  void global_pool() {
    if (case_.pass == Pass::kForward) {
      return expect(0, {ref::global_pool_forward(value(1)), ref::global_pool_forward(ref::magnitudes(value(1))),
                        dimension(1, 1) * dimension(1, 2)});
    }
    const Array dx = ref::global_pool_backward(value(1), case_.tensor(0).shape[1], case_.tensor(0).shape[2]);
    expect(0, {dx, ref::magnitudes(dx), 2});
  }

  void linear() {
    const bool by_input = case_.input_major;
    const Array a = ref::magnitudes(value(1));
    if (case_.pass == Pass::kBackwardBias) return expect(0, {xt::sum(value(1), {0}), xt::sum(a, {0}), dimension(1, 0)});
    const Array b = ref::magnitudes(value(2));
    if (case_.pass == Pass::kForward) {
      const Array bias_size = case_.has(3) ? ref::magnitudes(value(3)) : Array();
      return expect(0, {ref::linear_forward(value(1), value(2), optional(3), by_input),
                        ref::linear_forward(a, b, case_.has(3) ? &bias_size : nullptr, by_input), dimension(1, 1) + 1});
    }
    if (case_.pass == Pass::kBackwardData) {
      return expect(0, {ref::linear_backward_data(value(1), value(2), by_input), ref::linear_backward_data(a, b, by_input),
                        dimension(1, 1)});
    }
    expect(0, {ref::linear_backward_weight(value(1), value(2), by_input), ref::linear_backward_weight(a, b, by_input),
               dimension(1, 0)});
  }

  void layer_norm() {
    const double M = dimension(3, 0), C = dimension(3, 1);
    if (case_.pass == Pass::kForward) {
      const ref::Moments moments = ref::layer_norm_statistics(value(3), case_.norm.epsilon);
      const Array normal = ref::layer_norm_normal(value(3), moments);
      const Array size = ref::layer_norm_normal_magnitude(value(3), moments);
      expect(0, {normal * value(4) + value(5), size * xt::abs(value(4)) + xt::abs(value(5)), C + 4});
      expect(1, {moments.mean, xt::mean(ref::magnitudes(value(3)), {1}), C});
      return expect(2, {moments.rstd, moments.rstd, C});
    }
    const ref::Moments moments{value(4), value(5)};
    const ref::NormGradients g = ref::layer_norm_backward(value(3), moments, value(6), value(7));
    const ref::NormGradients size = ref::layer_norm_backward_magnitude(value(3), moments, value(6), value(7));
    expect(0, {g.dx, size.dx, C + 4});
    expect(1, {g.dgamma, size.dgamma, M});
    expect(2, {g.dbeta, size.dbeta, M});
  }

  // A polynomial, an exponential and a division: about ten roundings.
  void gelu() {
    Expected e{ref::zeros_like(value(1)), ref::zeros_like(value(1)), 10};
    for (size_t i = 0; i < e.value.size(); ++i) {
      const double x = value(1)(i);
      const bool backward = case_.pass == Pass::kBackward;
      e.value(i) = backward ? value(2)(i) * ref::gelu_slope(x, case_.tanh_form) : ref::gelu(x, case_.tanh_form);
      e.magnitude(i) = backward ? std::abs(value(2)(i)) * ref::gelu_slope_magnitude(x, case_.tanh_form) : std::abs(x);
    }
    expect(0, e);
  }

  void embedding() {
    if (case_.pass == Pass::kForward) return expect(0, rounded(ref::embedding_forward(value(1), value(2), optional(3))));
    const Array dy = ref::magnitudes(value(3));
    const double rows = dimension(2, 0) * dimension(2, 1);
    if (case_.has(0)) {
      const size_t V = case_.tensor(0).shape[0];
      expect(0, {ref::embedding_backward_table(value(2), value(3), V), ref::embedding_backward_table(value(2), dy, V), rows});
    }
    if (case_.has(1)) {
      const size_t L = case_.tensor(1).shape[0];
      expect(1, {ref::embedding_backward_positions(value(3), L), ref::embedding_backward_positions(dy, L), rows});
    }
  }

  void attention() {
    const size_t heads = case_.attention.heads;
    const Array mask = attention_mask(case_, data_.scalars);
    const Tensor& y = case_.tensor(case_.pass == Pass::kForward ? 0 : 2);
    const double terms = static_cast<double>(y.shape[1]) + static_cast<double>(y.shape[2]) / static_cast<double>(heads);
    if (case_.pass == Pass::kForward) {
      const ref::AttentionResult r = ref::attention_forward(value(2), mask, heads);
      expect(0, {r.y, r.y_magnitude, terms});
      return expect(1, {r.lse, r.lse_magnitude, terms});
    }
    const ref::AttentionGradient g = ref::attention_backward(value(1), mask, value(4), heads, stores_bf16(case_) ? &value(2) : nullptr);
    expect(0, {g.dqkv, g.magnitude, terms});
  }

  void dropout() {
    const uint64_t n = value(1).size();
    const Array y = value(1) * ref::dropout_mask(data_.scalars, case_.dropout.stream, n, case_.dropout.probability);
    expect(0, {y, ref::magnitudes(y), case_.dropout.probability == 0 ? 0.0 : 3.0});
  }

  void loss_head_backward() {
    const ref::LossHead head = ref::loss_head(value(4), value(5), optional(6), value(7));
    const ref::LossHeadGradients g =
        ref::loss_head_backward(value(4), value(5), optional(6), value(7), data_.scalars.micro_batches);
    const double M = dimension(4, 0), C = dimension(4, 1), V = dimension(5, 0);
    expect(0, {g.dx, g.dx_magnitude, C + V + 4});
    expect(1, {g.dw, g.dw_magnitude, C + V + M + 4});
    expect(2, {g.db, g.db_magnitude, C + V + M + 4});
    const double labelled = std::max(1.0, static_cast<double>(head.labelled));
    out_.loss_sum = number(data_.scalars.loss_sum + head.mean(), head.sum_magnitude / labelled, C + V + M + 4);
  }
  void loss_head_evaluate() {
    const ref::LossHead head = ref::loss_head(value(1), value(2), optional(3), value(4));
    const double M = dimension(1, 0), C = dimension(1, 1), V = dimension(2, 0);
    out_.loss_sum = number(data_.scalars.loss_sum + head.sum, head.sum_magnitude, C + V + M + 4);
    out_.scalars.labelled += head.labelled;
    out_.scalars.correct += head.correct;
  }

  // In double: the unit roundoff of f32 is scaled away.
  void grad_norm_reduce() {
    Expected e{ref::zeros({case_.group.size()}), ref::zeros({case_.group.size()}), 1};
    for (size_t t = 0; t < case_.group.size(); ++t) {
      long double sum = 0;
      const uint64_t first = case_.group[t].offset / 4, n = case_.group[t].elements();
      for (uint64_t i = first; i < first + n; ++i) sum += static_cast<long double>(value(1)(i)) * value(1)(i);
      e.value(t) = static_cast<double>(sum);
      e.magnitude(t) = e.value(t) * std::sqrt(static_cast<double>(n)) * 0x1p-29;
    }
    expect(0, e);
  }
  void grad_norm_finish() {
    double sum = 0;
    for (const double norm : value(1)) sum += norm;
    if (!std::isfinite(sum)) {
      out_.scalars.skip = 1;
      return;
    }
    const double norm = std::sqrt(sum);
    const double factor = case_.max_norm == 0 ? 1.0 : std::min(1.0, case_.max_norm / (norm + 1e-6));
    out_.gradient_norm = number(norm, norm, 2);
    out_.clip_factor = number(factor, factor, factor == 1.0 ? 0 : 4);
  }

  void update() {
    const bool adam = case_.op == Op::kAdamW;
    const StepScalars& s = data_.scalars;
    const UpdateAttribute& a = case_.update;
    const ref::UpdateStep step{.learning_rate = s.learning_rate, .clip_factor = s.clip_factor, .weight_decay = a.weight_decay,
                               .momentum = a.momentum, .beta1 = a.beta1, .beta2 = a.beta2, .epsilon = a.epsilon,
                               .nesterov = a.nesterov != 0, .step = s.step + 1.0};
    const Array& p = value(0);
    Expected next[3];
    for (Expected& e : next) e = {ref::zeros_like(p), ref::zeros_like(p), 12};
    for (size_t i = 0; i < p.size(); ++i) {
      const double m = case_.has(1) ? value(1)(i) : 0.0;
      const ref::UpdatedElement e =
          adam ? ref::adamw(step, p(i), m, value(2)(i), value(3)(i)) : ref::sgd(step, p(i), m, value(2)(i));
      next[0].value(i) = e.p, next[1].value(i) = e.m, next[2].value(i) = e.v;
      next[0].magnitude(i) = e.p_magnitude, next[1].magnitude(i) = e.m_magnitude, next[2].magnitude(i) = e.v_magnitude;
    }
    for (uint32_t i = 0; i < (adam ? 3u : 2u); ++i) {
      if (case_.has(i)) expect(i, s.skip != 0 ? exact(value(i)) : next[i]);
    }
  }

  const KernelCase& case_;
  const CaseData& data_;
  CaseExpected out_;
};

}  // namespace

ExpectedStatistics expected_statistics(const Array& x, double epsilon) {
  const ref::Moments moments = ref::batch_norm_statistics(x, epsilon);
  const double M = static_cast<double>(x.size()) / static_cast<double>(moments.mean.size());
  return {{moments.mean, xt::mean(ref::magnitudes(ref::rows(x)), {0}), M}, {moments.rstd, moments.rstd, M}};
}

CaseExpected expected(const KernelCase& c, const CaseData& data) { return Oracle(c, data).answer(); }

}  // namespace reprise::test
