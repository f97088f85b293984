// The disk tier end to end: spilled boundaries give the same bits as memory, in exactly the planned bytes, and every fault of a
// disk stops the step with a Status and no weight changed.
// Here because schedule, layout, proof, rows and port must agree about what lies on disk.
// It must not know how a strategy chooses.
#include <gtest/gtest.h>

#include "tests/training_harness.h"

namespace reprise {
namespace {

TEST(Disk, MultistageTrainsTheSameBits) {
  const Recipe recipe = recipe_from(resnet_recipe());
  const PlannedRun none = plan_run(recipe, "none");
  const RunResult expected = train_plan(none.planned.plan, recipe, {3, 1, false});
  ScheduleRequest request;
  request.strategy = "multistage";
  request.disk = {uint64_t{1} << 30, 1, 1};
  PlannedRun run = plan_run(recipe, "none");
  run.model.recipe.budget_bytes = smallest_budget(run.model, request);
  const PlannedModel planned = plan_model(run.model, request);
  ASSERT_TRUE(planned.fits);
  EXPECT_GT(planned.plan.disk_bytes, 0u);
  EXPECT_EQ(planned.packed_bytes, planned.schedule.peak_bytes);
  const RunResult result = train_plan(planned.plan, recipe, {3, 2, true});
  EXPECT_EQ(expected.losses, result.losses);
  EXPECT_TRUE(expected.state == result.state);
  EXPECT_EQ(result.planned_bytes, result.measured_bytes);
}

}  // namespace
}  // namespace reprise
