// See kernel_data.h.
// Here because saved values (means, maxima, softmax sums) take a reference forward to make.
// It must not know the kernels.
#include "tests/ref/kernel_data.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "tests/ref/attention.h"
#include "tests/ref/conv.h"
#include "tests/ref/norm.h"
#include "tests/ref/random.h"

namespace reprise::test {

Array as_f32(Array a) {
  for (double& value : a) value = as_f32(value);
  return a;
}

size_t bad_position(const KernelCase& c) {
  const uint32_t i = c.op == Op::kLossHead ? (c.pass == Pass::kBackward ? 7 : 4) : 1;
  return c.tensor(i).elements() * 2 / 3;
}

Array attention_mask(const KernelCase& c, const StepScalars& scalars) {
  if (c.attention.dropout == 0) return Array(Array::shape_type{1}, 1.0);
  const Tensor& qkv = c.tensor(c.pass == Pass::kForward ? 2 : 1);
  const size_t B = qkv.shape[0], T = qkv.shape[1], heads = c.attention.heads;
  Array mask = ref::dropout_mask(scalars, c.attention.stream, B * heads * T * T, c.attention.dropout);
  mask.reshape({B, heads, T, T});
  return mask;
}

namespace {

class CaseDataMaker {
 public:
  explicit CaseDataMaker(const KernelCase& c) : case_(c), random_(c.id) {}

  CaseData make() {
    data_.values.resize(case_.arguments.size());
    set_scalars();
    for (uint32_t i = 0; i < case_.arguments.size(); ++i) {
      const ArgumentInfo& argument = case_.info().arguments[i];
      const bool read = argument.role != Role::kOutput || (case_.accumulate >> i & 1u) != 0;
      if (case_.has(i) && read && argument.dtype != contract::kScalars) fill(i, -1, 1);
    }
    adjust();
    round_activations();
    return std::move(data_);
  }

 private:
  Array& value(uint32_t i) { return data_.values[i]; }

  void fill(uint32_t i, double low, double high) {
    const Tensor& tensor = case_.tensor(i);
    std::vector<size_t> shape(tensor.shape, tensor.shape + tensor.rank);
    value(i) = Array(Array::shape_type(shape.begin(), shape.end()), 0.0);
    for (double& element : value(i)) element = as_f32(random_.uniform(low, high));
    round_activation(i);
  }

  // What a kernel cannot see must not be asked of it: inputs stored as bf16 have such values.
  void round_activation(uint32_t i) {
    if (!case_.has(i) || case_.tensor(i).dtype != DType::kBf16) return;
    for (double& element : value(i)) element = static_cast<double>(float{Bf16(static_cast<float>(element))});
  }
  void round_activations() {
    for (uint32_t i = 0; i < case_.arguments.size(); ++i) round_activation(i);
  }

  void set_scalars() {
    StepScalars& s = data_.scalars;
    s.seed = 0x123456789abcdef0ull;
    s.step = 12;
    s.micro_batch = 3;
    s.micro_batches = case_.micro_batches;
    s.skip = case_.data == DataKind::kSkip;
    s.learning_rate = 0.0375f;
    s.clip_factor = 0.625f;
    s.gradient_norm = 2.5f;
    s.loss_sum = 1.25;
    s.labelled = 17;
    s.correct = 5;
  }

  // Data that the default, uniform in [-1, 1), does not fit.
  void adjust() {
    switch (case_.op) {
      case Op::kBatchNorm: return adjust_batch_norm();
      case Op::kNormConv: return case_.pass == Pass::kForward ? set_norm(3, 5) : set_norm(1, 3);
      case Op::kNormAddRelu:
        shape_norm_input(value(1));
        return set_norm(1, 3);
      case Op::kNormRelu: return adjust_norm_relu();
      case Op::kLayerNorm: return adjust_layer_norm();
      case Op::kRelu:
        for (double& x : value(1)) x = away_from_zero(x);
        if (case_.pass == Pass::kBackward) value(1) = xt::maximum(value(1), 0.0);
        return;
      case Op::kGelu: return adjust_gelu();
      case Op::kMaxPool: return adjust_max_pool();
      case Op::kEmbedding: return adjust_tokens(case_.pass == Pass::kForward ? 1 : 2);
      case Op::kAttention: return adjust_attention();
      case Op::kLossHead: return adjust_loss_head();
      case Op::kGradNorm: return adjust_grad_norm();
      case Op::kAdamW:
        for (double& v : value(2)) v = std::abs(v) < 0.05 ? 0.0 : as_f32(v * v);
        return;
      default: return;
    }
  }

  double not_finite() const {
    using Limits = std::numeric_limits<double>;
    return case_.data == DataKind::kNaN ? Limits::quiet_NaN() : Limits::infinity();
  }
  static double away_from_zero(double x) { return std::abs(x) < 0.02 ? as_f32(std::copysign(0.02, x)) : x; }

  void shape_norm_input(Array& x) {
    for (double& element : x) {
      if (case_.data == DataKind::kOffset) element = as_f32(100 + element);
      if (case_.data == DataKind::kConstant) element = 3.25;
    }
  }

  void adjust_batch_norm() {
    const auto positive = [&](uint32_t i) {
      for (double& element : value(i)) element = as_f32(0.6 + 0.5 * element);
    };
    if (case_.pass == Pass::kRunning) {
      positive(1);
      value(2).fill(7.0);
      for (double& rstd : value(4)) rstd = as_f32(1 / std::sqrt(0.1 + std::abs(rstd)));
      return;
    }
    const uint32_t x = case_.pass == Pass::kBackward ? 3 : case_.pass == Pass::kStatistics ? 2 : 1;
    shape_norm_input(value(x));
    if (case_.pass == Pass::kStatistics) return;
    if (case_.pass == Pass::kInference) return positive(3);
    const ref::Moments moments = ref::batch_norm_statistics(value(x), case_.norm.epsilon);
    value(x + 1) = as_f32(moments.mean);
    value(x + 2) = as_f32(moments.rstd);
  }

  // Mean and rstd of argument x at `moments` and after; gamma and beta such that about half of norm(x) is negative, that beta alone is
  // not near zero, and that neither are the +-gamma + beta of a channel of two rows.
  void set_norm(uint32_t x, uint32_t moments) {
    const auto apart = [&](uint32_t i, double least, double spread) {
      for (double& element : value(i)) element = as_f32(std::copysign(least + spread * std::abs(element), element));
    };
    apart(moments + 2, 0.6, 0.6);
    apart(moments + 3, 0.1, 0.3);
    set_moments(x, moments);
  }
  void set_moments(uint32_t x, uint32_t moments) {
    const ref::Moments of_x = ref::batch_norm_statistics(value(x), 1e-5);
    value(moments) = as_f32(of_x.mean);
    value(moments + 1) = as_f32(of_x.rstd);
  }

  // norm(x) away from relu's kink, where a gradient jumps: what lies near moves out, two rows that are alike apart, and the moments
  // follow. A single row is its mean: beta alone decides.
  void adjust_norm_relu() {
    shape_norm_input(value(3));
    set_norm(3, 4);
    if (case_.norm.count == 1) return;
    for (int round = 0; round < 100 && push_from_kink(); ++round) set_moments(3, 4);
  }
  bool push_from_kink() {
    constexpr double kLeast = 0.03, kPushed = 0.08;
    Array& x = value(3);
    const size_t C = value(4).size();
    bool pushed = false;
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t c = i % C;
      const double scale = value(5)(c) * value(6)(c), y = (x.flat(i) - value(4)(c)) * scale + value(7)(c);
      const double unit = std::max(1.0, std::abs(scale));  // near in x is near too, where rows that hardly differ make a large scale
      if (std::abs(y) >= kLeast * unit) continue;
      x.flat(i) = as_f32(x.flat(i) + (i / C % 2 == 0 ? kPushed : -kPushed) * unit / std::abs(scale));
      pushed = true;
    }
    round_activation(3);
    return pushed;
  }

  void adjust_layer_norm() {
    shape_norm_input(value(3));
    if (case_.pass == Pass::kForward) return;
    const ref::Moments moments = ref::layer_norm_statistics(value(3), case_.norm.epsilon);
    value(4) = as_f32(moments.mean);
    value(5) = as_f32(moments.rstd);
  }

  void adjust_gelu() {
    const double special[] = {0.0, 1e-30, -1e-30, 30.0, -30.0, 8.5, -8.5, 1000.0, -1000.0, -5.2, 5.2, -3.1};
    Array& x = value(1);
    for (double& element : x) element = as_f32(6 * element);
    for (size_t i = 0; i < std::size(special) && x.size() > std::size(special); ++i) x(i) = as_f32(special[i]);
  }

  // Distinct values, at least 0.01 apart, so that finite differences change no maximum; or ties; or all negative.
  void adjust_max_pool() {
    if (case_.pass == Pass::kBackward) {
      const Tensor& t = case_.tensor(0);
      Array x = ref::zeros({t.shape[0], t.shape[1], t.shape[2], t.shape[3]});
      set_pool_input(x);
      value(1) = ref::max_pool_forward(x, case_.window).index;
      return;
    }
    set_pool_input(value(2));
  }
  void set_pool_input(Array& x) {
    std::vector<double> order(x.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<double>(i);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_.below(i)]);
    size_t i = 0;
    for (double& element : x) {
      element = as_f32((order[i++] - 0.5 * static_cast<double>(x.size())) / 64);
      if (case_.data == DataKind::kTies) element = static_cast<double>(random_.below(3)) - 1;
      if (case_.data == DataKind::kNegative) element = as_f32(-1 - std::abs(element));
    }
  }

  void adjust_tokens(uint32_t i) {
    const uint32_t V = case_.tensor(case_.pass == Pass::kForward ? 2 : 0).shape[0];
    const bool no_table = case_.pass == Pass::kBackward && !case_.has(0);
    for (double& token : value(i)) token = static_cast<double>(random_.below(no_table ? 5 : V));
    if (case_.expects_bad_index()) value(i).flat(bad_position(case_)) = case_.data == DataKind::kBadLow ? -1.0 : V;
  }

  void adjust_attention() {
    const uint32_t qkv = case_.pass == Pass::kForward ? 2 : 1;
    if (case_.data == DataKind::kLarge) {
      for (double& element : value(qkv)) element *= 8;
    }
    if (case_.pass == Pass::kForward) return;
    const ref::AttentionResult saved = ref::attention_forward(value(1), attention_mask(case_, data_.scalars), case_.attention.heads);
    value(2) = as_f32(saved.y);
    value(3) = as_f32(saved.lse);
  }

  void adjust_loss_head() {
    const uint32_t x = case_.pass == Pass::kBackward ? 4 : 1, w = x + 1, labels = x + 3;
    const uint32_t V = case_.tensor(w).shape[0];
    if (case_.data == DataKind::kLarge) {
      for (double& element : value(x)) element *= 8;
      for (double& element : value(w)) element *= 4;
    }
    if (case_.data == DataKind::kEqual) {
      value(w).fill(0.0);
      if (case_.has(w + 1)) value(w + 1).fill(0.5);
    }
    if (case_.is_non_finite()) value(x).flat(value(x).size() / 2) = not_finite();
    for (double& label : value(labels)) {
      label = static_cast<double>(random_.below(V));
      const bool sometimes = case_.data == DataKind::kPlain && random_.below(3) == 0;
      if (sometimes || case_.data == DataKind::kAllIgnored) label = kIgnoredLabel;
    }
    if (case_.data == DataKind::kEqual) value(labels).flat(0) = 0;  // the first maximum
    if (case_.expects_bad_index()) value(labels).flat(bad_position(case_)) = case_.data == DataKind::kBadLow ? -1.0 : V;
  }

  void adjust_grad_norm() {
    if (case_.pass == Pass::kFinish) {
      for (double& norm : value(1)) norm = std::abs(norm) * (case_.data == DataKind::kTiny ? 1e-6 : 1.0);
      if (case_.is_non_finite()) value(1).flat(3) = not_finite();
      return;
    }
    Array padded = ref::zeros_like(value(1));  // padding between tensors is zero, as the plan promises
    for (const Tensor& tensor : case_.group) {
      for (uint64_t i = tensor.offset / 4; i < tensor.offset / 4 + tensor.elements(); ++i) padded(i) = value(1)(i);
    }
    value(1) = padded;
  }

  const KernelCase& case_;
  CaseRandom random_;
  CaseData data_;
};

}  // namespace

CaseData make_data(const KernelCase& c) { return CaseDataMaker(c).make(); }

}  // namespace reprise::test
