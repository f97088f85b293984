// Tests the references: the gradient of every forward by finite differences, and values known by
// hand. A kernel is compared with a reference, so the reference needs a test.
#include <gtest/gtest.h>

#include <cmath>
#include <ostream>

#include "tests/ops/families.h"
#include "tests/ref/random.h"

namespace reprise::test {

void PrintTo(const KernelCase& c, std::ostream* out) { *out << c.id; }

namespace {

// Returns the derivative along `direction` by the fourth-order central difference, with error
// O(h^4).
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

// Compares the case's gradients with finite differences: for up to eight single elements (two if
// the forward is slow), and for one random direction of all elements.
TEST_P(Reference, BackwardIsTheSlopeOfForward) {
  const KernelCase& c = GetParam();
  CaseData data = make_data(c);
  const auto differentiable = family_of(c.op).differentiable;
  ASSERT_NE(differentiable, nullptr) << "no forward for " << c.id;
  const Differentiable f = differentiable(c, data);
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
    EXPECT_NEAR(slope(f, variable, direction), dot(gradient.value, direction),
                1e-7 * dot(gradient.magnitude, xt::abs(direction)) + rounding)
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

// Compares the references' forward with known values, because finite differences cannot check a
// forward.
TEST(ReferenceForward, HasTheValuesKnownByHand) {
  for (const OpFamily* family : op_families()) {
    if (family->known_values == nullptr) continue;
    for (const KnownValue& known : family->known_values()) {
      ASSERT_EQ(known.got.size(), known.want.size()) << known.what;
      for (size_t i = 0; i < known.want.size(); ++i)
        EXPECT_NEAR(known.got.flat(i), known.want.flat(i), known.tolerance) << known.what;
    }
  }
}

TEST(ReferenceRandom, PhiloxKnownAnswers) {
  EXPECT_EQ(ref::philox_words({0, 0}, {0, 0, 0, 0}), (ref::Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(ref::philox_words({0xa4093822, 0x299f31d0}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (ref::Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// An evaluation's counts are compared exactly. So in every case each value must be at least two
// tolerances away from the point at which a count changes.
TEST(ReferenceData, CountsHaveAMargin) {
  for (const KernelCase& c : kernel_cases()) {
    if (c.pass != Pass::kEvaluate || c.expects_bad_index()) continue;
    EXPECT_GT(expected(c, make_data(c)).margin, 2) << c.id;
  }
}

TEST(ReferenceData, IsExactInF32) {
  for (const KernelCase& c : kernel_cases()) {
    const CaseData data = make_data(c);
    if (c.op == Op::kGradNorm || c.is_non_finite()) continue;  // norms are doubles; a NaN equals no number
    for (const Array& values : data.values) {
      // Every value must be an f32, or a NaN, which marks an absent target.
      for (const double value : values) ASSERT_TRUE(value == as_f32(value) || std::isnan(value)) << c.id;
    }
  }
}

}  // namespace
}  // namespace reprise::test
