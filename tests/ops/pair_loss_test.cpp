// Tests losses of pairs for very long, very short and zero vectors, for which finite differences
// fail. A model's first steps produce such vectors, and training must continue.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/script_numbers.h"
#include "tests/ports/test_machine.h"
#include "tests/ports/test_workers.h"

namespace reprise::test {
namespace {

using Floats = std::vector<float>;

constexpr uint64_t kB = 6;
constexpr uint32_t kD = 9;
constexpr PairLossAttribute kLosses[] = {{static_cast<uint32_t>(PairLossKind::kContrast), 0.25f, 0},
                                         {static_cast<uint32_t>(PairLossKind::kContrast), 0.25f, 1},
                                         {static_cast<uint32_t>(PairLossKind::kCosine), 0, 0, 0.125f},
                                         {static_cast<uint32_t>(PairLossKind::kSimilarity)}};

struct Judged {
  double loss;
  bool skip;
  Floats dx;
};
Judged judge(const PairLossAttribute& loss, const Floats& x, const Floats& targets, uint32_t workers = 2) {
  std::vector<double> scratch(8192);
  TestWorkers hands{workers};
  const KernelContext context{.workers = &hands.workers(), .machine = test_backend().machine};
  StepScalars scalars{};
  scalars.step_labelled = kB;
  Judged judged{0, false, Floats(x.size())};
  const PairLossInputOf<float> in = {
      .x = x.data(), .targets = targets.data(), .scratch = scratch.data(), .B = kB, .D = kD, .loss = loss};
  EXPECT_TRUE(cpu_pair_loss_backward<float>(context, {judged.dx.data(), &scalars, in}).ok());
  judged.loss = scalars.loss_sum, judged.skip = scalars.skip != 0;
  return judged;
}

const Floats kTargets = {1, -1, 1, 1, -1, 1};

// The cosine, and so the loss, does not depend on the vectors' lengths; derivatives are inversely
// proportional to the lengths. At 2^80 the squares overflow f32. At 2^-36 the product of two
// squared lengths is denormal in f32.
TEST(PairLoss, LengthsChangeNothingButTheSlopesSize) {
  const Floats x = script_numbers(2 * kB * kD, 6, 2);
  for (const PairLossAttribute& loss : kLosses) {
    const Judged plain = judge(loss, x, kTargets);
    for (const float factor : {0x1p+80f, 0x1p-36f}) {
      Floats other = x;
      for (float& number : other) number *= factor;
      const Judged scaled = judge(loss, other, kTargets);
      EXPECT_EQ(scaled.loss, plain.loss) << factor;
      for (size_t i = 0; i < x.size(); ++i)
        EXPECT_NEAR(scaled.dx[i] * factor, plain.dx[i], 1e-6f * std::abs(plain.dx[i])) << factor << ", element " << i;
    }
  }
}

TEST(PairLoss, AVectorWithoutADirectionHasNoSlope) {
  Floats x = script_numbers(2 * kB * kD, 6, 2);
  std::fill_n(x.begin() + 2 * kD, kD, 0.0f);  // the first input of the second pair is zero
  for (const PairLossAttribute& loss : kLosses) {
    const Judged judged = judge(loss, x, kTargets);
    EXPECT_TRUE(std::isfinite(judged.loss) && !judged.skip);
    double largest = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_TRUE(std::isfinite(judged.dx[i]));
      EXPECT_TRUE(i / kD != 2 || judged.dx[i] == 0.0f) << "element " << i;
      largest = std::max(largest, static_cast<double>(std::abs(judged.dx[i])));
    }
    EXPECT_GT(largest, 0.0);
    EXPECT_LT(largest, 10.0) << "what stands beside it has slopes as ever";
  }
}

// A pair without a target (NaN) must not affect the results of the other pairs.
TEST(PairLoss, APairWithoutATargetIsNotAnothersOther) {
  Floats x = script_numbers(2 * kB * kD, 6, 2), targets = kTargets;
  targets[2] = std::nanf("");
  for (const PairLossAttribute& loss : kLosses) {
    const Judged before = judge(loss, x, targets);
    for (uint32_t c = 0; c < 2 * kD; ++c) x[4 * kD + c] = 3.0f - x[4 * kD + c];
    const Judged after = judge(loss, x, targets, 3);
    EXPECT_EQ(before.loss, after.loss);
    EXPECT_EQ(before.dx, after.dx);
    for (uint32_t c = 0; c < 2 * kD; ++c) EXPECT_EQ(after.dx[4 * kD + c], 0.0f);
  }
}

}  // namespace
}  // namespace reprise::test
