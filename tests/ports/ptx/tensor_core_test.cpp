// Compares the models of tensor cores with sums computed by hand. All tests of products on tensor
// cores rely on these models.
#include "tests/ports/ptx/tensor_core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace reprise::test {
namespace {

using fibre::kTensorCores;
using fibre::TensorCore;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

uint16_t bf16_of(float value) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16); }
float power(int exponent) { return std::ldexp(1.0f, exponent); }

// Returns c + the sum of products in bf16, computed as element (3, 5) of the result. All other
// elements of the operands are zero.
float sum_bf16(TensorCore model, float c, const std::vector<std::pair<float, float>>& products) {
  float sums[16][8] = {};
  uint16_t a[16][16] = {}, b[16][8] = {};
  sums[3][5] = c;
  for (size_t k = 0; k < products.size(); ++k) {
    a[3][k] = bf16_of(products[k].first);
    b[k][5] = bf16_of(products[k].second);
  }
  fibre::multiply_add_bf16(model, sums, a, b);
  EXPECT_EQ(sums[2][5], 0.0f);
  return sums[3][5];
}

// Expects these results of the three models.
void expect_sums(float c, const std::vector<std::pair<float, float>>& products, float ampere, float hopper,
                 float once) {
  EXPECT_EQ(sum_bf16(TensorCore::kAmpere, c, products), ampere);
  EXPECT_EQ(sum_bf16(TensorCore::kHopper, c, products), hopper);
  EXPECT_EQ(sum_bf16(TensorCore::kRoundedOnce, c, products), once);
}

TEST(TensorCore, SmallIntegersAreExactInAll) {
  expect_sums(0.5f, {{2, 3}, {-4, 5}, {1, 1}}, -12.5f, -12.5f, -12.5f);
  expect_sums(0, {}, 0, 0, 0);
  expect_sums(7, {{0, 1}}, 7, 7, 7);
}

// The largest terms, 1 and -1, cancel, so that only the bits of small terms remain. kAmpere keeps
// bits down to 2^-24, kHopper down to 2^-25.
TEST(TensorCore, CancellationShowsTheBitsThatWereKept) {
  expect_sums(1, {{-1, 1}, {power(-12), power(-12)}}, power(-24), power(-24), power(-24));
  expect_sums(1, {{-1, 1}, {power(-12), power(-13)}}, 0, power(-25), power(-25));
  expect_sums(1, {{-1, 1}, {power(-13), power(-13)}}, 0, 0, power(-26));
}

// The exponent of a product is the sum of its factors' exponents. So 1.5 * 1.5 = 2.25 has exponent
// 0, not 1, and a term of 2^-24 is kept.
TEST(TensorCore, AProductsExponentIsThatOfItsFactors) {
  expect_sums(-2.25f, {{1.5f, 1.5f}, {power(-12), power(-12)}}, 0, power(-24), power(-24));  // c has exponent 1
  expect_sums(0, {{1.5f, 1.5f}, {-1.5f, 1.5f}, {power(-12), power(-12)}}, power(-24), power(-24), power(-24));
}

// Sums are truncated towards zero for both signs; the third model rounds to nearest, ties to even.
TEST(TensorCore, SumsAreCutTowardsZero) {
  const float above = 1 + power(-23);
  expect_sums(1, {{power(-12), 1.5f * power(-12)}}, 1, 1, above);
  expect_sums(-1, {{-power(-12), 1.5f * power(-12)}}, -1, -1, -above);
  expect_sums(1, {{power(-12), power(-12)}}, 1, 1, 1);
  // Each term is truncated by itself: kAmpere makes 2^-24 of 1.5 * 2^-24. Two such terms are one
  // bit of the result.
  const float term = 1.5f * power(-12);
  expect_sums(1, {{power(-12), term}, {power(-12), term}}, above, above, 1 + 2 * power(-23));
  expect_sums(1, {{power(-12), term}, {power(-12), term}, {power(-12), term}, {power(-12), term}}, 1 + 2 * power(-23),
              1 + 3 * power(-23), 1 + 3 * power(-23));
}

// kAmpere adds products 8 to 15 to the sum of products 0 to 7, which is truncated before.
TEST(TensorCore, AmpereCutsBetweenItsHalves) {
  std::vector<std::pair<float, float>> products(16);
  products[0] = products[8] = {power(-12), power(-12)};
  expect_sums(1, products, 1, 1 + power(-23), 1 + power(-23));
  std::swap(products[1], products[8]);
  expect_sums(1, products, 1 + power(-23), 1 + power(-23), 1 + power(-23));
}

TEST(TensorCore, InfinitiesAndNans) {
  for (const TensorCore model : kTensorCores) {
    EXPECT_EQ(sum_bf16(model, 1, {{kInfinity, 2}}), kInfinity);
    EXPECT_EQ(sum_bf16(model, -kInfinity, {{1, 2}}), -kInfinity);
    for (const float nan : {sum_bf16(model, 1, {{kInfinity, 2}, {kInfinity, -2}}), sum_bf16(model, 1, {{kInfinity, 0}}),
                            sum_bf16(model, kInfinity, {{-kInfinity, 1}}), sum_bf16(model, std::nanf(""), {{1, 1}})})
      EXPECT_EQ(std::bit_cast<uint32_t>(nan), 0x7fffffffu);
    EXPECT_EQ(sum_bf16(model, 0, {{power(127), 2}}), kInfinity);
  }
}

TEST(TensorCore, ZerosLeaveASumUnlessItIsMinusZero) {
  for (const TensorCore model : kTensorCores) {
    for (const std::pair<float, float>& zero : {std::pair(0.0f, 1.0f), {1.0f, 0.0f}, {0.0f, 0.0f}}) {
      for (const float sum : {-3.0f, power(-149), -power(-130), std::numeric_limits<float>::max(), -kInfinity, 0.0f})
        EXPECT_EQ(sum_bf16(model, sum, {zero}), sum);
      EXPECT_EQ(std::bit_cast<uint32_t>(sum_bf16(model, -0.0f, {zero})), 0u);
      EXPECT_EQ(std::bit_cast<uint32_t>(sum_bf16(model, std::nanf(""), {zero})), 0x7fffffffu);
    }
    EXPECT_EQ(std::bit_cast<uint32_t>(sum_bf16(model, -0.0f, {{-0.0f, 1}})), 0u);
    EXPECT_TRUE(std::isnan(sum_bf16(model, 1, {{kInfinity, 0}})));
    float sums[16][8] = {};
    const uint16_t zeros[16][16] = {};
    uint16_t infinities[16][8];
    std::fill(&infinities[0][0], &infinities[0][0] + 16 * 8, bf16_of(kInfinity));
    fibre::multiply_add_bf16(model, sums, zeros, infinities);
    EXPECT_TRUE(std::isnan(sums[0][0]) && std::isnan(sums[15][7]));
  }
}

TEST(TensorCore, SmallNumbersAreNotFlushed) {
  for (const TensorCore model : kTensorCores) {
    EXPECT_EQ(sum_bf16(model, 0, {{power(-130), 1}}), power(-130));           // a subnormal factor
    EXPECT_EQ(sum_bf16(model, 0, {{power(-75), power(-74)}}), power(-149));   // a subnormal result
    EXPECT_EQ(sum_bf16(model, power(-149), {{power(-100), power(-49)}}), power(-148));
    EXPECT_EQ(sum_bf16(model, power(-140), {{0, power(100)}}), power(-140));  // a zero's exponent does not count
  }
  // The result is below the last bit of a subnormal f32: it is truncated to 0, or rounded up.
  expect_sums(0, {{1.5f * power(-75), power(-75)}}, 0, 0, power(-149));
}

// kAmpere sums four products of tf32 at once, kHopper eight.
TEST(TensorCore, Tf32IgnoresThirteenBitsAndHasHalvesOfFour) {
  const auto sum = [](TensorCore model, float c, float (&x)[8], float (&y)[8]) {
    float sums[16][8] = {};
    uint32_t a[16][8] = {}, b[8][8] = {};
    sums[15][7] = c;
    for (int k = 0; k < 8; ++k) a[15][k] = std::bit_cast<uint32_t>(x[k]), b[k][7] = std::bit_cast<uint32_t>(y[k]);
    fibre::multiply_add_tf32(model, sums, a, b);
    return sums[15][7];
  };
  float x[8] = {power(-12), 0, 0, 0, power(-12)}, y[8] = {power(-12), 0, 0, 0, power(-12)};
  EXPECT_EQ(sum(TensorCore::kAmpere, 1, x, y), 1.0f);
  EXPECT_EQ(sum(TensorCore::kHopper, 1, x, y), 1 + power(-23));
  float longer[8] = {1 + power(-10) + power(-11)}, ones[8] = {1};
  for (const TensorCore model : kTensorCores) EXPECT_EQ(sum(model, 0, longer, ones), 1 + power(-10));
}

TEST(TensorCore, RoundingToTf32TakesATieAwayFromZero) {
  const auto rounded = [](float value) { return std::bit_cast<float>(fibre::round_to_tf32(value)); };
  EXPECT_EQ(rounded(1 + power(-11)), 1 + power(-10));
  EXPECT_EQ(rounded(-1 - power(-11)), -1 - power(-10));
  EXPECT_EQ(rounded(1 + power(-12)), 1.0f);
  EXPECT_EQ(rounded(std::numeric_limits<float>::max()), kInfinity);
  EXPECT_EQ(rounded(-kInfinity), -kInfinity);
  EXPECT_TRUE(std::isnan(rounded(std::nanf(""))));
}

// The models' sums of 16 random products may differ only by some last bits of the largest product.
// A wrong shift would give a larger difference.
TEST(TensorCore, TheModelsStayTogether) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (int turn = 0; turn < 1000; ++turn) {
    std::vector<std::pair<float, float>> products(16);
    for (auto& [a, b] : products) {
      a = std::bit_cast<float>(static_cast<uint32_t>(bf16_of(normal(random))) << 16);
      b = std::bit_cast<float>(static_cast<uint32_t>(bf16_of(normal(random))) << 16);
    }
    const float c = normal(random), once = sum_bf16(TensorCore::kRoundedOnce, c, products);
    EXPECT_NEAR(sum_bf16(TensorCore::kAmpere, c, products), once, 3e-6);
    EXPECT_NEAR(sum_bf16(TensorCore::kHopper, c, products), once, 3e-6);
  }
}

}  // namespace
}  // namespace reprise::test
