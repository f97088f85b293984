// Compares the exponentials of lib/cpu/vector_math.h with the C library's exp in double, and with
// each other. Softmax and the loss head use vector_exp_at_most_88 if its range suffices. In this
// range it must give the bits of vector_exp.
#include "lib/cpu/vector_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace reprise {
namespace {

constexpr uint32_t kStep = 1009;  // every kStep-th float is tested: one to two million of each sign

template <typename F>
void for_floats(float first, float last, const F& body) {
  for (uint32_t bits = std::bit_cast<uint32_t>(first); bits <= std::bit_cast<uint32_t>(last); bits += kStep)
    body(std::bit_cast<float>(bits));
}

TEST(VectorExp, WithinAUnitInTheLastPlace) {
  double worst = 0;
  const auto compare = [&](float x) {
    const double right = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(static_cast<double>(vector_exp(x)) - right) / (right * 0x1p-23));
  };
  for_floats(-0.0f, -87.32f, compare);
  for_floats(0.0f, 88.7f, compare);
  EXPECT_LT(worst, 1);
  EXPECT_GT(worst, 0.25);  // a worst error near 0 would mean that the comparison detects nothing
}

TEST(VectorExp, BothHaveTheSameBits) {
  uint64_t different = 0, compared = 0;
  const auto compare = [&](float x) {
    different += std::bit_cast<uint32_t>(vector_exp(x)) != std::bit_cast<uint32_t>(vector_exp_at_most_88(x));
    ++compared;
  };
  for_floats(-0.0f, -__builtin_inff(), compare);
  for_floats(0.0f, 88.0f, compare);
  EXPECT_EQ(different, 0u);
  EXPECT_GT(compared, 3000000u);
}

// Returns the number of floats near x for which the two functions give different bits.
uint64_t different_near(float x, float (*ours)(float), float (*right)(float)) {
  uint64_t different = 0;
  const uint32_t middle = std::bit_cast<uint32_t>(x);
  for (uint32_t bits = middle - 100000; bits <= middle + 100000; ++bits) {
    const float each = std::bit_cast<float>(bits);
    different += std::bit_cast<uint32_t>(ours(each)) != std::bit_cast<uint32_t>(right(each));
  }
  return different;
}

TEST(VectorExp, BesideOneTheSameBits) {
  const auto ours = [](float x) { return vector_one_plus_exp(x); };
  const auto right = [](float x) { return 1.0f + vector_exp(x); };
  uint64_t different = 0, infinite = 0;
  const auto compare = [&](float x) {
    different += std::bit_cast<uint32_t>(ours(x)) != std::bit_cast<uint32_t>(right(x));
    infinite += ours(x) == __builtin_inff();
  };
  for_floats(-0.0f, -__builtin_inff(), compare);
  for_floats(0.0f, __builtin_inff(), compare);
  EXPECT_EQ(different, 0u);
  EXPECT_GT(infinite, 100000u);
  for (const float x : {-88.0f, -87.0f, kLastExp}) EXPECT_EQ(different_near(x, ours, right), 0u) << x;
  EXPECT_LT(vector_one_plus_exp(kLastExp), __builtin_inff());
  EXPECT_EQ(vector_one_plus_exp(std::nextafter(kLastExp, 100.0f)), __builtin_inff());
}

TEST(VectorExp, InItsRangeTheSameBits) {
  uint64_t different = 0, compared = 0;
  const auto compare = [&](float x) {
    different += std::bit_cast<uint32_t>(vector_exp(x)) != std::bit_cast<uint32_t>(exp_in_range(x));
    ++compared;
  };
  for_floats(-0.0f, -87.33f, compare);
  for_floats(0.0f, kLastExp, compare);
  for (const float x : {-87.33f, kLastExp}) compare(x);
  EXPECT_EQ(different, 0u);
  EXPECT_GT(compared, 2000000u);
}

TEST(VectorTanh, WithinTwoUnitsInTheLastPlace) {
  double worst = 0;
  const auto compare = [&](float x) {
    const double right = std::tanh(static_cast<double>(x)), ulp = std::ldexp(0x1p-23, std::ilogb(right));
    worst = std::max(worst, std::abs(static_cast<double>(vector_tanh(x)) - right) / ulp);
  };
  for_floats(0x1p-60f, 90.0f, compare);
  for_floats(-0x1p-60f, -90.0f, compare);
  EXPECT_LT(worst, 2);
  EXPECT_GT(worst, 0.25);
  EXPECT_EQ(vector_tanh(__builtin_inff()), 1.0f);
  EXPECT_EQ(vector_tanh(-__builtin_inff()), -1.0f);
  EXPECT_TRUE(std::isnan(vector_tanh(__builtin_nanf(""))));
}

TEST(VectorExpMinusOne, WithinTwoUnitsInTheLastPlace) {
  double worst = 0;
  for_floats(-0x1p-60f, -90.0f, [&](float x) {
    const double right = std::expm1(static_cast<double>(x)), ulp = std::ldexp(0x1p-23, std::ilogb(right));
    worst = std::max(worst, std::abs(static_cast<double>(vector_exp_minus_one(x)) - right) / ulp);
  });
  EXPECT_LT(worst, 2);
  EXPECT_GT(worst, 0.25);
  EXPECT_EQ(vector_exp_minus_one(0.0f), 0.0f);
  EXPECT_EQ(vector_exp_minus_one(-__builtin_inff()), -1.0f);
  EXPECT_TRUE(std::isnan(vector_exp_minus_one(__builtin_nanf(""))));
}

TEST(VectorLogOnePlus, WithinTwoUnitsInTheLastPlace) {
  double worst = 0;
  for_floats(0x1p-120f, 1.0f, [&](float e) {
    const double right = std::log1p(static_cast<double>(e)), ulp = std::ldexp(0x1p-23, std::ilogb(right));
    worst = std::max(worst, std::abs(static_cast<double>(vector_log_one_plus(e)) - right) / ulp);
  });
  EXPECT_LT(worst, 2);
  EXPECT_GT(worst, 0.25);
  EXPECT_EQ(vector_log_one_plus(0.0f), 0.0f);
  EXPECT_TRUE(std::isnan(vector_log_one_plus(__builtin_nanf(""))));
}

TEST(VectorExp, Ends) {
  EXPECT_EQ(vector_exp(-__builtin_inff()), 0.0f);
  EXPECT_EQ(vector_exp_at_most_88(-__builtin_inff()), 0.0f);
  EXPECT_EQ(vector_exp(89.0f), __builtin_inff());
  for (const uint32_t payload :
       {0x7f800001u, 0x7f8001ffu, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffc00000u, 0xffffffffu}) {
    EXPECT_TRUE(std::isnan(vector_exp(std::bit_cast<float>(payload)))) << payload;
    EXPECT_TRUE(std::isnan(vector_exp_at_most_88(std::bit_cast<float>(payload)))) << payload;
    EXPECT_TRUE(std::isnan(vector_one_plus_exp(std::bit_cast<float>(payload)))) << payload;
  }
}

}  // namespace
}  // namespace reprise
