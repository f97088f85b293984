// Tests that loss, gradients and weights have the same bits after 20 steps, for every schedule,
// budget and number of workers. Some runs also fill slots with NaN outside their lifetimes.
// Measured bytes must equal planned bytes. A failure names the strategy, the share of memory and
// the workers.
#include <gtest/gtest.h>

#include "tests/runtime/expect_same.h"
#include "tools/plan/schedule/simulate.h"

namespace reprise {
namespace {

struct Case {
  const char* name;
  std::string recipe;
};

std::vector<Case> cases() {
  return {{"resnet_basic", resnet_recipe()},
          {"resnet_bottleneck", resnet_recipe(R"(, "accumulate": 2, "clip_norm": 1.0)", "bottleneck")},
          {"resnet_released", resnet_recipe(R"(, "gradient_release": true)")},
          {"gpt", gpt_recipe()},
          {"gpt_accumulated", gpt_recipe(R"(, "accumulate": 3, "clip_norm": 0.5)", 0.0)}};
}

class SameBits : public ::testing::TestWithParam<int> {};

TEST_P(SameBits, EverySchedule) {
  const Case c = cases()[static_cast<size_t>(GetParam())];
  const Recipe recipe = recipe_from(c.recipe);
  constexpr int kSteps = 20;
  const PlannedRun none = plan_run(recipe, "none");
  const RunResult expected = train_plan(none.planned.plan, recipe, {kSteps, 1, false});
  EXPECT_LT(expected.losses.back(), expected.losses.front());
  const std::pair<const char*, double> schedules[] = {{"none", -1},     {"sqrt", -1},     {"revolve", 0},
                                                      {"every-k", 0},   {"optimal", 0},   {"optimal", 0.15},
                                                      {"optimal", 0.3}, {"optimal", 0.5}, {"optimal", 0.7}};
  for (const auto& [strategy, share] : schedules) {
    const PlannedRun run = plan_run(recipe, strategy, share);
    EXPECT_EQ(run.planned.packed_bytes, run.planned.schedule.peak_bytes)
        << c.name << " " << strategy << ": packed must be the schedule's bound";
    for (const uint32_t workers : {1u, 2u, 3u}) {
      const RunResult result = train_plan(run.planned.plan, recipe, {kSteps, workers, false});
      const std::string what = std::string(c.name) + " " + strategy + " share " + std::to_string(share) + " workers " +
                               std::to_string(workers);
      expect_same(expected, result, what);
      EXPECT_LE(result.planned_bytes, run.model.recipe.budget_bytes.value_or(UINT64_MAX)) << what;
    }
  }
}

TEST_P(SameBits, WithADisk) {
  const Case c = cases()[static_cast<size_t>(GetParam())];
  const Recipe recipe = recipe_from(c.recipe);
  constexpr int kSteps = 4;
  const RunResult expected = train_plan(plan_run(recipe, "none").planned.plan, recipe, {kSteps, 1, false});
  for (const char* strategy : {"multistage", "h-revolve"}) {
    for (const double share : {0.0, 0.15}) {
      const PlannedRun run = plan_run(recipe, strategy, share);
      const std::string what = std::string(c.name) + " " + strategy + " share " + std::to_string(share);
      EXPECT_TRUE(share > 0 || run.planned.plan.spill_bytes > 0) << what << ": nothing goes to disk";
      EXPECT_EQ(run.planned.plan.spill_bytes, run.planned.schedule.disk_bytes) << what;
      EXPECT_EQ(run.planned.packed_bytes, run.planned.schedule.peak_bytes)
          << what << ": packed must be the schedule's bound";
      for (const uint32_t workers : {1u, 2u}) {
        const RunResult result = train_plan(run.planned.plan, recipe, {kSteps, workers, workers == 2});
        expect_same(expected, result, what + " workers " + std::to_string(workers));
      }
    }
  }
}

TEST_P(SameBits, PoisonedArena) {
  const Case c = cases()[static_cast<size_t>(GetParam())];
  const Recipe recipe = recipe_from(c.recipe);
  for (const auto& [strategy, share] :
       std::initializer_list<std::pair<const char*, double>>{{"none", -1}, {"revolve", 0}, {"optimal", 0}}) {
    const PlannedRun run = plan_run(recipe, strategy, share);
    const RunResult clean = train_plan(run.planned.plan, recipe, {5, 1, false});
    const RunResult poisoned = train_plan(run.planned.plan, recipe, {5, 2, true});
    expect_same(clean, poisoned, std::string(c.name) + " poisoned " + strategy);
  }
}

TEST_P(SameBits, EveryPolicy) {
  const Case c = cases()[static_cast<size_t>(GetParam())];
  const Recipe recipe = recipe_from(c.recipe);
  const PlannedRun none = plan_run(recipe, "none");
  const RunResult expected = train_plan(none.planned.plan, recipe, {5, 1, false});
  for (const char* policy : {"dots", "linear", "attention-core", "drop-bn-relu", "ops:relu,gelu", "names:*1*"}) {
    Recipe selective = recipe;
    selective.schedule.policy = policy;
    const PlannedRun run = plan_run(selective, kPolicy);
    // Policies that keep everything except some values also keep values that no backward reads. So
    // only "dots" and "linear" never need more memory than storing everything.
    const bool saves = policy == std::string("dots") || policy == std::string("linear");
    EXPECT_TRUE(!saves || run.planned.plan.arena_bytes <= none.planned.plan.arena_bytes) << c.name << " " << policy;
    expect_same(expected, train_plan(run.planned.plan, recipe, {5, 2, true}),
                std::string(c.name) + " policy " + policy);
  }
}

// One schedule for each mode of residues, with the smallest memory, in which every repeated forward
// starts from a residue. For a small net the planner rarely finds such a schedule cheap, so the
// test constructs them.
TEST_P(SameBits, EveryModeOfResidues) {
  const Case c = cases()[static_cast<size_t>(GetParam())];
  const Recipe recipe = recipe_from(c.recipe);
  const PlannedRun none = plan_run(recipe, "none");
  const RunResult expected = train_plan(none.planned.plan, recipe, {5, 1, false});
  const Chain& chain = none.model.chain;
  const int last = chain.length() - 1;
  for (int mode = 0; mode < static_cast<int>(chain.links[0].residues.size()); ++mode) {
    Schedule schedule;
    for (int i = last; i >= 0; --i) {
      if (i > 0) schedule.actions.push_back({ActionKind::kAdvance, 0, i, mode});
      schedule.actions.push_back(
          {ActionKind::kRecord, i, 0, i % static_cast<int>(chain.links[static_cast<size_t>(i)].tapes.size())});
      schedule.actions.push_back({ActionKind::kBackward, i, 0, -1});
      if (i > 0) schedule.actions.push_back({ActionKind::kDrop, i, 0, -1});
    }
    const OwnedPlan plan = lower_schedule(none.model, schedule, layout_chain(chain, schedule.actions));
    const std::string what = std::string(c.name) + " mode " + std::to_string(mode);
    expect_same(expected, train_plan(plan, recipe, {5, 2, false}), what);
    expect_same(expected, train_plan(plan, recipe, {5, 1, true}), what + " poisoned");
  }
}

// Schedules with kept tapes (PLANNING 4.4). The planner chooses them only if memory is tight and
// residues do not help, so the test constructs one.
TEST_P(SameBits, TapesThatOutliveTheirInputs) {
  const Case c = cases()[static_cast<size_t>(GetParam())];
  const Recipe recipe = recipe_from(c.recipe);
  const PlannedRun none = plan_run(recipe, "none");
  const Schedule schedule = schedule_that_holds_tapes(none.model.chain);
  const Simulation walked = simulate(none.model.chain, schedule.actions);
  ASSERT_TRUE(walked.valid) << walked.fault;
  const ChainLayout layout = layout_chain(none.model.chain, schedule.actions);
  EXPECT_EQ(layout.packed_bytes, walked.peak_bytes);
  const OwnedPlan plan = lower_schedule(none.model, schedule, layout);
  const RunResult expected = train_plan(none.planned.plan, recipe, {5, 1, false});
  expect_same(expected, train_plan(plan, recipe, {5, 2, false}), c.name);
  expect_same(expected, train_plan(plan, recipe, {5, 1, true}), std::string(c.name) + " poisoned");
}

INSTANTIATE_TEST_SUITE_P(Nets, SameBits, ::testing::Range(0, 5),
                         [](const auto& info) { return cases()[static_cast<size_t>(info.param)].name; });

}  // namespace
}  // namespace reprise
