// Tests several plans of one training that share an arena and replace each other between steps.
// State must stay. Loss, gradients and weights must have the bits of a training in one plan. The
// memory after State is filled again at each change, so that the measured bytes are those of the
// current plan.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "lib/same_state.h"
#include "ports/linux/linux_port.h"
#include "tests/runtime/expect_same.h"
#include "tests/runtime/guarded_device.h"

namespace reprise {
namespace {

constexpr uint64_t kGuard = 4096;

Recipe with_host(Recipe recipe) {
  recipe.schedule.host_bytes = uint64_t{1} << 30;
  recipe.schedule.write_cost = recipe.schedule.read_cost = 0.25;
  return recipe;
}

// Plans of one recipe, each with less memory than the one before. The first stores everything, the
// third spills to a disk, and the last spills to the host.
struct Plans {
  explicit Plans(const Recipe& recipe)
      : runs{plan_run(recipe, "none"), plan_run(recipe, "optimal", 0.4), plan_run(recipe, "h-revolve", 0),
             plan_run(recipe, "optimal", 0), plan_run(with_host(recipe), "h-revolve", 0)} {
    for (const PlannedRun& run : runs) {
      views.push_back(run.planned.plan.view());
      max_bytes = std::max(max_bytes, views.back().arena_bytes + kGuard);
      uint64_t& spilled = views.back().spill_level == SpillLevel::kHost ? host_bytes : disk_bytes;
      spilled = std::max(spilled, views.back().spill_bytes);
    }
    EXPECT_GT(host_bytes, 0u);
    if (!linux_port().acquire_host(host_bytes, &host_memory).ok()) throw std::runtime_error("no memory of the host");
  }
  ~Plans() { linux_port().release_host(&host_memory); }
  Plans(const Plans&) = delete;
  Plans& operator=(const Plans&) = delete;
  std::vector<PlannedRun> runs;
  std::vector<Plan> views;
  uint64_t max_bytes = 0, disk_bytes = 0, host_bytes = 0;
  HostMemory host_memory;
};

// Pairs of a step, and the index of the plan that takes over before this step.
using Changes = std::vector<std::pair<int, size_t>>;

struct Place {
  Arena arena;
  Disk disk;
  const Backend& backend;
  const Workers& workers;
};

Resources resources_for(const Plans& plans, const Place& place, const Plan& plan) {
  return {.arena = {place.arena.base, plan.arena_bytes + kGuard},
          .workers = &place.workers,
          .disk = place.disk,
          .host_memory = plans.host_memory};
}

// Trains with these changes of plan. Before each change, the measured bytes must equal the planned
// bytes of the current plan.
RunResult train_with_changes(const Plans& plans, const BatchSource& source, const Place& place, int steps,
                             const Changes& changes) {
  size_t now = changes.front().second;
  Trainer trainer;
  const Resources first = resources_for(plans, place, plans.views[now]);
  EXPECT_TRUE(
      bind_plan(plans.views[now], place.backend, place.workers, first.arena, trainer, place.disk, {}, plans.host_memory)
          .ok());
  RunResult result;
  for (int s = 0; s < steps; ++s) {
    for (const auto& [before, plan] : changes) {
      if (before != s || s == 0) continue;
      EXPECT_EQ(measure(trainer), trainer.plan->arena_bytes) << "before step " << s;
      uint64_t spilled = 0;
      if (trainer.plan->spill_level == SpillLevel::kHost) {
        EXPECT_TRUE(measured_bytes(trainer, Region::kSpill, spilled).ok());
        EXPECT_EQ(spilled, trainer.plan->spill_bytes) << "before step " << s;
      }
      const Status status = rebind(plans.views[plan], resources_for(plans, place, plans.views[plan]), trainer);
      EXPECT_TRUE(status.ok()) << status.message;
      now = plan;
    }
    StepReport report;
    const Status status = train_step(trainer, source, report);
    if (!status.ok()) throw std::runtime_error(status.message);
    result.losses.push_back(report.loss);
    result.gradient_norms.push_back(report.gradient_norm);
  }
  result.state = bytes_at(trainer, trainer.region(Region::kState), trainer.plan->state_bytes);
  result.gradients = bytes_at(trainer, trainer.region(Region::kCarried), trainer.plan->carried_bytes);
  result.planned_bytes = trainer.plan->arena_bytes;
  result.measured_bytes = measure(trainer);
  EXPECT_TRUE(evaluate(trainer, source, 1, result.evaluation).ok());
  unbind(trainer);
  return result;
}

std::vector<std::string> recipes() {
  return {resnet_recipe(), resnet_recipe(R"(, "accumulate": 2, "clip_norm": 1.0)", "bottleneck"),
          resnet_recipe(R"(, "gradient_release": true)"), gpt_recipe(),
          gpt_recipe(R"(, "accumulate": 3, "clip_norm": 0.5)")};
}

const Changes kChanges[] = {{{0, 0}, {3, 3}},
                            {{0, 3}, {3, 0}},
                            {{0, 0}, {1, 3}, {2, 0}, {3, 1}, {4, 2}, {6, 3}, {7, 3}},
                            {{0, 2}, {2, 1}, {5, 3}},
                            {{0, 4}, {2, 0}, {4, 2}, {5, 4}, {7, 3}}};

class PlanChange : public ::testing::TestWithParam<size_t> {};

TEST_P(PlanChange, KeepsTheBits) {
  const Recipe recipe = recipe_from(recipes()[GetParam()]);
  const Plans plans(recipe);
  const auto data = open_dataset(recipe, Split::kTraining);
  const TestArena arena(plans.max_bytes);
  Disk disk;
  const std::string spill = "/tmp/reprise-plan-change-" + std::to_string(::getpid());
  ASSERT_GT(plans.disk_bytes, 0u);
  ASSERT_TRUE(linux_port().open_disk(spill.c_str(), plans.disk_bytes, &disk).ok());
  constexpr int kSteps = 9;
  for (const uint32_t count : {1u, 2u}) {
    Workers workers;
    ASSERT_TRUE(linux_port().start_workers(count, &workers).ok());
    const Place place = {arena.get(), disk, test::test_backend(), workers};
    const RunResult expected = train_with_changes(plans, source_of(*data), place, kSteps, {{0, 0}});
    for (const Changes& changes : kChanges) {
      RunResult changed = train_with_changes(plans, source_of(*data), place, kSteps, changes);
      expect_same(expected, changed, recipe.name + " with changes from plan " + std::to_string(changes[0].second));
    }
    linux_port().stop_workers(&workers);
  }
  linux_port().close_disk(&disk);
}

// On a device, a change of plan must access State and the memory after it only through the backend,
// and must wait where necessary.
TEST_P(PlanChange, OnADevice) {
  const Recipe recipe = recipe_from(recipes()[GetParam()]);
  const Plans plans(recipe);
  const auto data = open_dataset(recipe, Split::kTraining);
  const Workers workers = {.stack_bytes = 1 << 20};
  const auto on_device = [&](const Changes& changes) {
    GuardedDevice device(plans.max_bytes, test::test_backend());
    return train_with_changes(plans, source_of(*data),
                              {device.arena(), device.disk(plans.disk_bytes), device.backend(), workers}, 6, changes);
  };
  expect_same(on_device({{0, 0}}), on_device(kChanges[2]), recipe.name);
}

INSTANTIATE_TEST_SUITE_P(Recipes, PlanChange, ::testing::Range<size_t>(0, 5));

// A refused change must not affect the training.
TEST(PlanChangeRefused, AndGoesOn) {
  const Recipe recipe = recipe_from(gpt_recipe());
  const PlannedRun stored = plan_run(recipe, "none"), tight = plan_run(recipe, "optimal", 0),
                   spilling = plan_run(recipe, "h-revolve", 0);
  const Plan plan = stored.planned.plan.view(), small = tight.planned.plan.view(), disk = spilling.planned.plan.view();
  const TestArena arena(plan.arena_bytes + kGuard);
  const Workers workers = {.stack_bytes = 1 << 20};
  const auto data = open_dataset(recipe, Split::kTraining);
  Trainer trainer;
  ASSERT_TRUE(bind_plan(plan, test::test_backend(), workers, arena.get(), trainer).ok());
  StepReport report;
  ASSERT_TRUE(train_step(trainer, source_of(*data), report).ok());
  const std::vector<unsigned char> before = bytes_at(trainer, trainer.arena.base, trainer.arena.bytes);
  const Resources good = {.arena = arena.get(), .workers = &workers};
  const auto refused = [&](const Plan& next, const Resources& resources, const char* words) {
    const Status status = rebind(next, resources, trainer);
    EXPECT_FALSE(status.ok()) << words;
    EXPECT_NE(std::string(status.message).find(words), std::string::npos) << status.message;
    EXPECT_EQ(trainer.plan, &plan);
    EXPECT_TRUE(bytes_at(trainer, trainer.arena.base, trainer.arena.bytes) == before) << words;
  };
  Resources other = good;
  other.arena.bytes = small.arena_bytes - 1;
  refused(small, other, "arena_bytes");
  other = good;
  other.arena.base = good.arena.base + kAlignment;
  other.arena.bytes -= kAlignment;
  refused(small, other, "where State lies");
  ASSERT_GT(disk.spill_bytes, 0u);
  refused(disk, good, "disk");
  const PlannedRun to_host = plan_run(with_host(recipe), "h-revolve", 0);
  const Plan host = to_host.planned.plan.view();
  ASSERT_TRUE(spills_to(host, SpillLevel::kHost));
  refused(host, good, "memory of the host");
  Recipe others[] = {recipe, recipe, recipe, recipe};
  others[0].seed += 1;
  others[1].accumulate = 2;
  others[2].freeze = {"transformer.wte.weight"};
  others[3].optimizer.lr *= 2;
  for (const Recipe& each : others) {
    const PlannedRun another = plan_run(each, "optimal", 0);
    const Plan next = another.planned.plan.view();
    EXPECT_FALSE(same_state(plan, next));
    other = good;
    other.arena.bytes = std::max(next.arena_bytes, plan.arena_bytes);  // refused before any access
    refused(next, other, "same State");
  }
  ASSERT_TRUE(rebind(small, good, trainer).ok());
  EXPECT_EQ(trainer.plan, &small);
  EXPECT_TRUE(train_step(trainer, source_of(*data), report).ok());
}

}  // namespace
}  // namespace reprise
