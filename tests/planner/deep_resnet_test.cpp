// Trains the 990-layer net of Chen et al. at 32 x 32 with four budgets. All must give the same
// bits, and measured bytes must equal planned bytes. Recomputation is nested deepest in deep nets,
// so tests of small nets do not cover it.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "ports/linux/linux_port.h"
#include "tests/planner/deep_resnet.h"
#include "tests/ports/test_machine.h"
#include "tools/run/profiling/measure.h"

namespace reprise {
namespace {

// Returns a hash of State (weights, momenta, statistics), which changes if any bit changes. State
// itself is several gigabytes and too large to be kept for a comparison.
uint64_t state_hash(const Trainer& trainer) {
  uint64_t hash = 0;
  std::vector<uint64_t> words(1 << 16);
  for (uint64_t at = 0; at < trainer.plan->state_bytes; at += words.size() * sizeof hash) {
    words.resize(std::min<uint64_t>(words.size(), (trainer.plan->state_bytes - at) / sizeof hash));
    EXPECT_TRUE(trainer.read(words.data(), trainer.arena.base + at, words.size() * sizeof hash).ok());
    for (const uint64_t word : words) {
      hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
      hash ^= hash >> 29;
    }
  }
  return hash;
}

TEST(DeepResNet, SameBitsAtFourBudgets) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "307 million weights under the sanitizers take minutes; the same code runs in same_bits_test";
#endif
  Recipe recipe = deep_resnet(kDeepUnits);
  std::get<ResNetModel>(recipe.model).image_height = std::get<ResNetModel>(recipe.model).image_width = 32;
  recipe.batch = 8;
  SolvedModel model = solve_model(recipe);
  const uint64_t minimum = smallest_budget(model, {});
  double loss = 0;
  float gradient_norm = 0;
  uint64_t state = 0;
  // Position of the budget between the smallest budget (0) and the bytes for storing everything
  // (1).
  for (const double share : {0.6, 0.1, 0.02, 0.0}) {
    model.recipe.budget_bytes =
        minimum + static_cast<uint64_t>(share * static_cast<double>(model.store_all_bytes - minimum));
    const PlannedModel planned = plan_model(model, {});
    ASSERT_TRUE(planned.fits) << share;
    PlanRun run(linux_port(), test::test_backend(), recipe, planned.plan, 2);
    (void)run.step();
    uint64_t measured = 0;
    ASSERT_TRUE(measured_bytes(run.trainer(), measured).ok());
    EXPECT_EQ(measured, planned.plan.arena_bytes) << share;
    if (state == 0) {
      loss = run.report().loss;
      gradient_norm = run.report().gradient_norm;
      state = state_hash(run.trainer());
      EXPECT_TRUE(loss > 1 && loss < 20) << loss;
      continue;
    }
    EXPECT_EQ(run.report().loss, loss) << share;
    EXPECT_EQ(run.report().gradient_norm, gradient_norm) << share;
    EXPECT_EQ(state_hash(run.trainer()), state) << share;
  }
}

}  // namespace
}  // namespace reprise
