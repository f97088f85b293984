// The judges of the references: central finite differences of every reference forward, and values known by hand.
// Here because a kernel's backward is judged by the reference's, which therefore needs a judge of its own.
// It must not know the kernels.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <ostream>

#include "tests/ref/attention.h"
#include "tests/ref/conv.h"
#include "tests/ref/elementwise.h"
#include "tests/ref/kernel_reference.h"
#include "tests/ref/loss_head.h"
#include "tests/ref/norm.h"
#include "tests/ref/random.h"

namespace reprise::test {

void PrintTo(const KernelCase& c, std::ostream* out) { *out << c.id; }

namespace {

using ref::Moments;

// A scalar function of some arrays, and the case's outputs that claim to be its derivatives.
struct Differentiable {
  std::vector<Array> variables;
  std::vector<uint32_t> outputs;  // output argument that holds the gradient of the variable of the same index
  std::function<double(const std::vector<Array>&)> loss;
};

double dot(const Array& a, const Array& b) { return xt::sum(a * b)(); }

Array random_like(const Tensor& tensor, const std::string& seed) {
  CaseRandom random(seed);
  Array a = Array(Array::shape_type(tensor.shape, tensor.shape + tensor.rank), 0.0);
  for (double& element : a) element = random.uniform(-1, 1);
  return a;
}

// Values with gaps of 1/64, shuffled: no difference quotient changes which one is the largest.
Array distinct_like(const Tensor& tensor, const std::string& seed) {
  CaseRandom random(seed);
  Array a = random_like(tensor, seed);
  for (size_t i = 0; i < a.size(); ++i) a.flat(i) = static_cast<double>(i) / 64;
  for (size_t i = a.size(); i > 1; --i) std::swap(a.flat(i - 1), a.flat(random.below(i)));
  return a;
}

// The function whose gradient the case's backward kernel returns: sum(dy * forward). May make saved values in `data` exact.
Differentiable differentiable(const KernelCase& c, CaseData& data) {
  std::vector<Array>& v = data.values;
  switch (c.op) {
    case Op::kConv:
      if (c.pass == Pass::kBackwardData) {
        return {{random_like(c.tensor(0), c.id)}, {0}, [&](const auto& at) { return dot(v[1], ref::conv_forward(at[0], v[2], c.window)); }};
      }
      return {{random_like(c.tensor(0), c.id)}, {0}, [&](const auto& at) { return dot(v[2], ref::conv_forward(v[1], at[0], c.window)); }};
    case Op::kNormConv: {
      const Array a = xt::maximum(ref::batch_norm_forward(v[1], {v[3], v[4]}, v[5], v[6]), 0.0);
      return {{random_like(c.tensor(0), c.id)}, {0}, [&, a](const auto& at) { return dot(v[2], ref::conv_forward(a, at[0], c.window)); }};
    }
    case Op::kNormRelu: {
      const Moments exact = ref::batch_norm_statistics(v[3], c.norm.epsilon);
      v[4] = exact.mean, v[5] = exact.rstd;
      return {{v[3], v[6], v[7]}, {0, 1, 2}, [&](const auto& at) {
                const Moments moments = ref::batch_norm_statistics(at[0], c.norm.epsilon);
                return dot(v[8], xt::maximum(ref::batch_norm_forward(at[0], moments, at[1], at[2]), 0.0));
              }};
    }
    case Op::kBatchNorm: {
      const Moments exact = ref::batch_norm_statistics(v[3], c.norm.epsilon);
      v[4] = exact.mean, v[5] = exact.rstd;
      return {{v[3], v[6], Array(v[6] + 0.25)}, {0, 1, 2}, [&](const auto& at) {
                const Moments moments = ref::batch_norm_statistics(at[0], c.norm.epsilon);
                return dot(v[7], ref::batch_norm_forward(at[0], moments, at[1], at[2]));
              }};
    }
    case Op::kLayerNorm: {
      const Moments exact = ref::layer_norm_statistics(v[3], c.norm.epsilon);
      v[4] = exact.mean, v[5] = exact.rstd;
      return {{v[3], v[6], Array(v[6] + 0.25)}, {0, 1, 2}, [&](const auto& at) {
                const Moments moments = ref::layer_norm_statistics(at[0], c.norm.epsilon);
                return dot(v[7], ref::layer_norm_normal(at[0], moments) * at[1] + at[2]);
              }};
    }
    case Op::kRelu:
      return {{Array(xt::where(v[1] > 0.0, v[1], -0.5))}, {0}, [&](const auto& at) { return dot(v[2], xt::maximum(at[0], 0.0)); }};
    case Op::kGelu:
      return {{v[1]}, {0}, [&](const auto& at) {
                double sum = 0;
                for (size_t i = 0; i < at[0].size(); ++i) sum += v[2](i) * ref::gelu(at[0](i), c.tanh_form);
                return sum;
              }};
    case Op::kMaxPool: {
      const Array x = distinct_like(c.tensor(0), c.id);
      v[1] = ref::max_pool_forward(x, c.window).index;
      return {{x}, {0}, [&](const auto& at) { return dot(v[2], ref::max_pool_forward(at[0], c.window).y); }};
    }
    case Op::kGlobalPool:
      return {{random_like(c.tensor(0), c.id)}, {0}, [&](const auto& at) { return dot(v[1], ref::global_pool_forward(at[0])); }};
    case Op::kLinear: {
      const Array point = random_like(c.tensor(0), c.id);
      if (c.pass == Pass::kBackwardBias) return {{point}, {0}, [&](const auto& at) { return dot(v[1], xt::zeros_like(v[1]) + at[0]); }};
      if (c.pass == Pass::kBackwardData) {
        return {{point}, {0}, [&](const auto& at) { return dot(v[1], ref::linear_forward(at[0], v[2], nullptr, c.input_major)); }};
      }
      return {{point}, {0}, [&](const auto& at) { return dot(v[2], ref::linear_forward(v[1], at[0], nullptr, c.input_major)); }};
    }
    case Op::kEmbedding: {
      if (!c.has(0)) {
        return {{random_like(c.tensor(1), c.id)}, {1}, [&](const auto& at) {
                  return dot(v[3], ref::embedding_forward(v[2], ref::zeros({5, c.tensor(3).shape[2]}), &at[0]));
                }};
      }
      Differentiable both{{random_like(c.tensor(0), c.id)}, {0}, [&](const auto& at) {
                            return dot(v[3], ref::embedding_forward(v[2], at[0], at.size() > 1 ? &at[1] : nullptr));
                          }};
      if (c.has(1)) both.variables.push_back(random_like(c.tensor(1), c.id)), both.outputs.push_back(1);
      return both;
    }
    case Op::kAttention:
      return {{v[1]}, {0}, [&](const auto& at) {
                const Array mask = attention_mask(c, data.scalars);
                return dot(v[4], ref::attention_forward(at[0], mask, c.attention.heads).y);
              }};
    case Op::kDropout:
      return {{random_like(c.tensor(0), c.id)}, {0}, [&](const auto& at) {
                return dot(v[1], at[0] * ref::dropout_mask(data.scalars, c.dropout.stream, at[0].size(), c.dropout.probability));
              }};
    case Op::kLossHead: {
      Differentiable head{{v[4], v[5]}, {0, 1}, [&](const auto& at) {
                            const Array* bias = at.size() > 2 ? &at[2] : nullptr;
                            return ref::loss_head(at[0], at[1], bias, v[7]).mean() / data.scalars.micro_batches;
                          }};
      if (c.has(6)) head.variables.push_back(v[6]), head.outputs.push_back(2);
      return head;
    }
    default: return {};
  }
}

// Fourth-order central difference along `direction`: error O(h^4).
double slope(const Differentiable& f, size_t variable, const Array& direction) {
  const double h = 1e-3;
  std::vector<Array> at = f.variables;
  const auto loss = [&](double steps) {
    at[variable] = f.variables[variable] + steps * h * direction;
    return f.loss(at);
  };
  return (8 * (loss(1) - loss(-1)) - (loss(2) - loss(-2))) / (12 * h);
}

class Reference : public ::testing::TestWithParam<KernelCase> {};

// Up to eight elements one by one (two where the forward is slow), and one direction through all of them.
TEST_P(Reference, BackwardIsTheSlopeOfForward) {
  const KernelCase& c = GetParam();
  CaseData data = make_data(c);
  const Differentiable f = differentiable(c, data);
  ASSERT_FALSE(f.variables.empty()) << "no forward for " << c.id;
  const CaseExpected expected_outputs = expected(c, data);
  const size_t probes = c.multiply_adds > 200000 ? 2 : 8;
  const double rounding = 1e-12 * (std::abs(f.loss(f.variables)) + 1);
  CaseRandom random(c.id + "directions");
  for (size_t variable = 0; variable < f.variables.size(); ++variable) {
    if (!c.has(f.outputs[variable])) continue;
    const Expected& gradient = expected_outputs.outputs[f.outputs[variable]];
    const size_t n = gradient.value.size();
    for (size_t probe = 0; probe < std::min<size_t>(n, probes); ++probe) {
      const size_t i = n <= probes ? probe : random.below(n);
      Array direction = ref::zeros_like(gradient.value);
      direction.flat(i) = 1;
      EXPECT_NEAR(slope(f, variable, direction), gradient.value.flat(i), 1e-7 * gradient.magnitude.flat(i) + rounding)
          << c.id << ": variable " << variable << ", element " << i;
    }
    Array direction = ref::zeros_like(gradient.value);
    for (double& element : direction) element = random.uniform(-1, 1);
    EXPECT_NEAR(slope(f, variable, direction), dot(gradient.value, direction), 1e-7 * dot(gradient.magnitude, xt::abs(direction)) + rounding)
        << c.id << ": variable " << variable << ", all elements";
  }
}

bool is_differentiable(const KernelCase& c) {
  const bool backward = c.pass == Pass::kBackward || c.pass == Pass::kBackwardData || c.pass == Pass::kBackwardWeight ||
                        c.pass == Pass::kBackwardBias;
  return backward && c.accumulate == 0 && !c.expects_bad_index() && !c.is_non_finite();
}
std::vector<KernelCase> differentiable_cases() {
  std::vector<KernelCase> kept;
  for (const KernelCase& c : kernel_cases()) {
    if (is_differentiable(c)) kept.push_back(c);
  }
  return kept;
}
INSTANTIATE_TEST_SUITE_P(Double, Reference, ::testing::ValuesIn(differentiable_cases()),
                         [](const auto& info) { return info.param.id; });

// Forwards have no finite differences to judge them: values known by hand or from tables.
TEST(ReferenceForward, ConvolutionCountsTheTapsInside) {
  const Array y = ref::conv_forward(Array({1, 3, 4, 2}, 1.0), Array({1, 3, 3, 2}, 1.0), {3, 3, 1, 1});
  EXPECT_EQ(xt::flatten(y), (xt::xarray<double>{8, 12, 12, 8, 12, 18, 18, 12, 8, 12, 12, 8}));
}

TEST(ReferenceForward, ConvolutionIsACorrelationWithStride) {
  Array x = xt::arange(25.0), w = xt::arange(1.0, 5.0);
  x.reshape({1, 5, 5, 1});
  w.reshape({1, 2, 2, 1});
  const Array y = ref::conv_forward(x, w, {2, 2, 3, 1});  // windows start at rows and columns -1 and 2
  EXPECT_EQ(xt::flatten(y), (xt::xarray<double>{0, 3 * 2 + 4 * 3.0, 2 * 10 + 4 * 15.0, 12 + 2 * 13 + 3 * 17 + 4 * 18.0}));
}

TEST(ReferenceForward, GeluOfOne) {
  EXPECT_NEAR(ref::gelu(1, false), 0.8413447460685429, 1e-15);
  EXPECT_NEAR(ref::gelu(1, true), 0.8411919906082768, 1e-15);
}

TEST(ReferenceForward, AttentionOverEqualScoresIsTheMeanOfThePast) {
  Array qkv = ref::zeros({1, 3, 3});
  qkv(0, 0, 2) = 3, qkv(0, 1, 2) = 5, qkv(0, 2, 2) = 10;
  const ref::AttentionResult r = ref::attention_forward(qkv, Array(Array::shape_type{1}, 1.0), 1);
  EXPECT_NEAR(r.y(0, 0, 0), 3, 1e-14);
  EXPECT_NEAR(r.y(0, 1, 0), 4, 1e-14);
  EXPECT_NEAR(r.y(0, 2, 0), 6, 1e-14);
  EXPECT_NEAR(r.lse(0, 0, 2), std::log(3.0), 1e-14);
}

TEST(ReferenceForward, LossOfEqualLogitsIsTheLogOfTheClasses) {
  const Array x = ref::zeros({3, 2}), w = ref::zeros({7, 2}), labels = {0.0, -100.0, 6.0};
  const ref::LossHead head = ref::loss_head(x, w, nullptr, labels);
  EXPECT_NEAR(head.mean(), std::log(7.0), 1e-14);
  EXPECT_EQ(head.labelled, 2u);
  EXPECT_EQ(head.correct, 1u);  // the first maximum is class 0
}

// The first step of Adam moves by the learning rate, whatever the gradient's size.
TEST(ReferenceForward, AdamsFirstStep) {
  const ref::UpdateStep step{.learning_rate = 0.5, .clip_factor = 1, .weight_decay = 0.25, .momentum = 0, .beta1 = 0.9,
                             .beta2 = 0.999, .epsilon = 1e-12, .nesterov = false, .step = 1};
  EXPECT_NEAR(ref::adamw(step, 2, 0, 0, -7).p, 2 - 0.5 * 0.25 * 2 + 0.5, 1e-9);
}

TEST(ReferenceForward, NesterovByHand) {
  const ref::UpdateStep step{.learning_rate = 0.5, .clip_factor = 0.5, .weight_decay = 1, .momentum = 0.5, .beta1 = 0,
                             .beta2 = 0, .epsilon = 0, .nesterov = true, .step = 1};
  const ref::UpdatedElement e = ref::sgd(step, 2, 4, 6);  // g = 3 + 2 = 5, m = 2 + 5 = 7, p = 2 - (5 + 3.5) / 2
  EXPECT_EQ(e.m, 7);
  EXPECT_EQ(e.p, 2 - 4.25);
}

TEST(ReferenceRandom, PhiloxKnownAnswers) {
  EXPECT_EQ(ref::philox_words({0, 0}, {0, 0, 0, 0}), (ref::Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(ref::philox_words({0xa4093822, 0x299f31d0}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (ref::Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// `correct` is compared exactly: no case may have a tie that rounding could decide.
TEST(ReferenceData, PredictionsAreNoTie) {
  for (const KernelCase& c : kernel_cases()) {
    if (c.op != Op::kLossHead || c.pass != Pass::kEvaluate || c.expects_bad_index()) continue;
    if (c.data == DataKind::kEqual || c.is_non_finite()) continue;
    const CaseData data = make_data(c);
    const ref::LossHead head = ref::loss_head(data.values[1], data.values[2], c.has(3) ? &data.values[3] : nullptr, data.values[4]);
    const double terms = c.tensor(1).shape[1] + 1.0;
    EXPECT_GT(head.smallest_margin, 2 * ref::kSafety * ref::kRounding * std::sqrt(terms)) << c.id;
  }
}

TEST(ReferenceData, IsExactInF32) {
  for (const KernelCase& c : kernel_cases()) {
    const CaseData data = make_data(c);
    if (c.op == Op::kGradNorm || c.is_non_finite()) continue;  // norms are doubles, and a NaN equals nothing
    for (const Array& values : data.values) {
      for (const double value : values) ASSERT_EQ(value, as_f32(value)) << c.id;
    }
  }
}

}  // namespace
}  // namespace reprise::test
