// Tests the formats of State (lib/state_format.h): the numbers that 8-bit codes represent, and
// random rounding.
#include "lib/state_format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/state_blocks.h"
#include "tests/ops/stored_state.h"
#include "tests/ports/test_machine.h"
#include "tests/ports/test_workers.h"

namespace reprise::test {
namespace {

TEST(DynamicCodes, AreTheMapOfThePaper) {
  for (const bool has_sign : {true, false}) {
    const std::vector<double>& map = dynamic_map(has_sign);
    ASSERT_EQ(map.size(), kDynamicCodes);
    for (uint32_t c = 0; c < kDynamicCodes; ++c) {
      EXPECT_NEAR(static_cast<double>(dynamic_number(c, has_sign)), map[c], std::abs(map[c]) * 1e-6) << c;
      EXPECT_TRUE(c == 0 || dynamic_number(c - 1, has_sign) < dynamic_number(c, has_sign)) << c;
    }
  }
  EXPECT_EQ(dynamic_number(kDynamicZero, true), 0);
  EXPECT_EQ(dynamic_number(0, false), 0);
}

DynamicBlock written(const std::vector<float>& numbers, bool has_sign) {
  DynamicBlock block;
  write_codes(block, numbers.data(), has_sign ? kSignedMap : kSquareMap, has_sign,
              static_cast<uint32_t>(numbers.size()));
  return block;
}

TEST(DynamicCodes, GiveBackWhatTheyStandFor) {
  for (const bool has_sign : {true, false}) {
    std::vector<float> numbers(kStateBlock);
    for (uint32_t c = 0; c < kStateBlock; ++c) numbers[c] = dynamic_number(c, has_sign);
    const DynamicBlock block = written(numbers, has_sign);
    EXPECT_EQ(block.largest, 1);
    for (uint32_t c = 0; c < kStateBlock; ++c) EXPECT_EQ(block.codes[c], c);
    std::vector<float> read(kStateBlock);
    read_codes(read.data(), block, has_sign ? kSignedMap : kSquareMap, kStateBlock);
    EXPECT_EQ(read, numbers);
  }
}

// As in bitsandbytes, rounding to a code must not turn a nonzero moment into zero or change its
// sign.
TEST(DynamicCodes, KeepTheSign) {
  const DynamicBlock block = written({1, 1e-9f, -1e-9f, 0, -1}, true);
  EXPECT_EQ(block.codes[1], kDynamicZero + 1);
  EXPECT_EQ(block.codes[2], kDynamicZero - 1);
  EXPECT_EQ(block.codes[3], kDynamicZero);
  EXPECT_EQ(dynamic_number(block.codes[4], true), -dynamic_number(kDynamicCodes - 2, true)) << "the map has no -1";
}

TEST(DynamicCodes, HaveABlockOfNothing) {
  const DynamicBlock block = written({0, 0, -0.0f}, true);
  EXPECT_EQ(block.largest, 0);
  for (const uint8_t code : block.codes) EXPECT_EQ(code, kDynamicZero);
  EXPECT_EQ(written({0}, false).codes[0], 0);
}

float rounded(float value, uint32_t random) {
  return std::bit_cast<float>(uint32_t{round_randomly(value, random)} << 16);
}

TEST(RandomRounding, TakesTheNearerNeighbourMoreOften) {
  for (const float value : {1.001f, -1.001f, 3.1415927f, 1e-20f, -7e30f}) {
    double sum = 0;
    std::set<float> seen;
    for (uint32_t random = 0; random < 65536; ++random)
      sum += static_cast<double>(rounded(value, random)), seen.insert(rounded(value, random));
    EXPECT_EQ(seen.size(), 2u) << value;
    EXPECT_NEAR(sum / 65536, static_cast<double>(value), std::abs(static_cast<double>(value)) * 1e-7)
        << "over all random numbers the mean is the value";
  }
  for (const float value : {0.0f, -0.0f, 1.0f, -0.75f, INFINITY}) {
    EXPECT_EQ(rounded(value, 0), value);
    EXPECT_EQ(rounded(value, 65535), value);
  }
  EXPECT_TRUE(std::isnan(rounded(NAN, 0)) && std::isnan(rounded(NAN, 65535)));
}

// Training of tensors that AdamW stores as bf16: parameters p and both moments m and v. step() runs
// AdamW once, with the random draws of `stream`.
struct Bf16Training {
  std::vector<Bf16> p, m, v;
  std::vector<float> g;
  uint32_t stream = 1;

  explicit Bf16Training(size_t n) : p(n, Bf16(1.0f)), m(n, Bf16(0.0f)), v(n, Bf16(1.0f)), g(n, 0.0f) {}
  void step(uint32_t number, float rate) {
    StepScalars scalars{};
    scalars.seed = 7, scalars.step = number, scalars.learning_rate = rate, scalars.clip_factor = 1;
    const TestWorkers hands(2, TaskOrder::kShuffled, number);
    const KernelContext context{.workers = &hands.workers(), .machine = test_backend().machine};
    ASSERT_TRUE(cpu_adamw_update(context, {.parameters = {p.data(), DType::kBf16},
                                           .first_moments = {m.data(), DType::kBf16},
                                           .second_moments = {v.data(), DType::kBf16},
                                           .gradients = g.data(),
                                           .scalars = &scalars,
                                           .n = p.size(),
                                           .weight_decay = 0,
                                           .beta1 = 0.9,
                                           .beta2 = 0.999,
                                           .epsilon = 1e-8f,
                                           .rate = 1,
                                           .stream = stream})
                    .ok());
  }
  double mean(const std::vector<Bf16>& of) const {
    double sum = 0;
    for (const Bf16 x : of) sum += static_cast<double>(static_cast<float>(x));
    return sum / static_cast<double>(of.size());
  }
};

// Each step multiplies the second moment by 0.999. With rounding to nearest the moment would remain
// 1, because the bf16 below 1 is 0.996.
TEST(RandomRounding, LetsSlowMomentsMove) {
  Bf16Training training(20000);
  for (uint32_t s = 0; s < 200; ++s) training.step(s, 0);
  EXPECT_NEAR(training.mean(training.v), std::pow(0.999, 200), 3e-3);
}

TEST(RandomRounding, LetsWeightsTakeSmallSteps) {
  Bf16Training training(20000);
  for (float& g : training.g) g = 1;
  for (uint32_t s = 0; s < 50; ++s) training.step(s, 1e-4f);
  // The expected p, by Adam in double. The step is m / (1 - b1^t) / sqrt(v / (1 - b2^t)); v is near
  // 1.
  double p = 1, m = 0, v = 1;
  for (int s = 1; s <= 50; ++s) {
    m = 0.9 * m + 0.1, v = 0.999 * v + 0.001;
    p -= 1e-4 * m / (1 - std::pow(0.9, s)) / std::sqrt(v / (1 - std::pow(0.999, s)));
  }
  EXPECT_LT(p, 1);
  EXPECT_NEAR(training.mean(training.p), p, 0.1 * (1 - p));
}

// Different elements, tensors, steps and stored parts (parameter, moments) must have different
// draws. Equal arguments must give equal draws.
TEST(RandomRounding, DrawsForEveryPlace) {
  std::set<std::vector<uint32_t>> seen;
  size_t draws = 0;
  for (const uint32_t step : {0u, 1u}) {
    for (const uint32_t stream : {0u, 1u}) {
      for (const RoundedPart part : {RoundedPart::kParameter, RoundedPart::kFirstMoment, RoundedPart::kSecondMoment}) {
        for (uint32_t draw = 0; draw < 2 * kStateDraws; ++draw, ++draws) {
          const PhiloxBlock words =
              state_draw({.seed = 1, .step = step, .stream = stream}, part, draw / kStateDraws, draw % kStateDraws);
          seen.insert({words.word, words.word + 4});
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), draws);
  Bf16Training one(1000), again(1000), other(1000);
  other.stream = 2;
  for (Bf16Training* t : {&one, &again, &other}) t->step(0, 1e-3f);
  const auto same = [](const std::vector<Bf16>& a, const std::vector<Bf16>& b) {
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(Bf16)) == 0;
  };
  EXPECT_TRUE(same(one.v, again.v));
  EXPECT_FALSE(same(one.v, other.v));
}

}  // namespace
}  // namespace reprise::test
