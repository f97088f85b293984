// Tests host memory as the second level, end to end. Spilled values must return however late a
// device copies. The bits must be those of a plan that stores everything, and measured bytes must
// be planned bytes. Schedule, layout, rows, trainer and backend must always agree on the content of
// that memory.
#include <gtest/gtest.h>

#include "lib/check.h"
#include "ports/linux/linux_port.h"
#include "tests/runtime/expect_same.h"
#include "tests/runtime/guarded_device.h"

namespace reprise {
namespace {

Recipe with_level(const std::string& text, SpillLevel level) {
  Recipe recipe = recipe_from(text);
  (level == SpillLevel::kHost ? recipe.schedule.host_bytes : recipe.schedule.disk_bytes) = uint64_t{1} << 30;
  recipe.schedule.write_cost = 0.5;
  recipe.schedule.read_cost = 0.25;
  return recipe;
}

const std::string kRecipes[] = {resnet_recipe(), resnet_recipe(R"(, "accumulate": 2, "clip_norm": 1.0)", "bottleneck"),
                                resnet_recipe(R"(, "gradient_release": true)"),
                                gpt_recipe(R"(, "accumulate": 3, "clip_norm": 0.5)", 0.0)};

class HostMemoryOf : public ::testing::TestWithParam<size_t> {
 protected:
  const std::string& text() const { return kRecipes[GetParam()]; }
};

TEST_P(HostMemoryOf, EveryBudgetHasTheBitsOfStoringAll) {
  const Recipe recipe = with_level(text(), SpillLevel::kHost);
  const RunResult expected = train_plan(plan_run(recipe_from(text()), "none").planned.plan, recipe, {4, 1, false});
  for (const char* strategy : {"multistage", "h-revolve", "optimal"}) {
    for (const double share : {0.0, 0.15, 0.4}) {
      const PlannedRun run = plan_run(recipe, strategy, share);
      const std::string what = std::string(strategy) + " share " + std::to_string(share);
      EXPECT_TRUE(share > 0 || run.planned.plan.spill_bytes > 0) << what << ": nothing goes to the host";
      EXPECT_EQ(run.planned.plan.spill_level, SpillLevel::kHost);
      EXPECT_EQ(run.planned.plan.spill_bytes, run.planned.schedule.disk_bytes) << what;
      for (const uint32_t workers : {1u, 2u}) {
        expect_same(expected, train_plan(run.planned.plan, recipe, {4, workers, workers == 2}),
                    what + " workers " + std::to_string(workers));
      }
    }
  }
}

// First spills every boundary except the last, as DeepSpeed's checkpoint_in_cpu does. Then spills
// the boundaries that a policy names.
TEST_P(HostMemoryOf, WhatIsAskedForGoesThere) {
  Recipe recipe = with_level(text(), SpillLevel::kHost);
  const RunResult expected = train_plan(plan_run(recipe_from(text()), "none").planned.plan, recipe, {4, 1, false});
  recipe.schedule.k = 1;
  const PlannedRun every = plan_run(recipe, "every-k");
  const size_t links = every.model.bodies.links.size();
  EXPECT_EQ(every.planned.plan.program(ProgramId::kMicroFirst).spilled.size(), links - 2);
  expect_same(expected, train_plan(every.planned.plan, recipe, {4, 2, true}), "every boundary");
  recipe.schedule.k = 0;
  const auto name_of = [&](size_t link) { return every.model.graph.values[every.model.bodies.links[link].input].name; };
  recipe.schedule.policy = "offload:" + name_of(1) + "," + name_of(2) + "," + name_of(links - 1);
  const PlannedRun named = plan_run(recipe, "policy");
  EXPECT_EQ(named.planned.plan.program(ProgramId::kMicroFirst).spilled_names,
            (std::vector<std::string>{name_of(1), name_of(2)}));
  expect_same(expected, train_plan(named.planned.plan, recipe, {4, 2, true}), "those that a policy names");
}

// A plan that spills to the host and one that spills to a disk of the same price may differ only in
// the carrier of the transfers.
TEST_P(HostMemoryOf, ADiskOfThatPriceIsPlannedAlike) {
  const OwnedPlan host = plan_run(with_level(text(), SpillLevel::kHost), "h-revolve", 0).planned.plan;
  const OwnedPlan disk = plan_run(with_level(text(), SpillLevel::kDisk), "h-revolve", 0).planned.plan;
  const OwnedProgram& a = host.program(ProgramId::kMicroFirst);
  const OwnedProgram& b = disk.program(ProgramId::kMicroFirst);
  EXPECT_EQ(host.spill_bytes, disk.spill_bytes);
  EXPECT_EQ(host.arena_bytes, disk.arena_bytes);
  EXPECT_EQ(a.arguments, b.arguments);
  EXPECT_EQ(a.spilled_names, b.spilled_names);
  ASSERT_EQ(a.rows.size(), b.rows.size());
  for (size_t r = 0; r < a.rows.size(); ++r)
    EXPECT_TRUE(a.rows[r].op == b.rows[r].op && a.rows[r].pass == b.rows[r].pass) << "row " << r;
}

// A plan bound to a device that completes each copy as late as possible. Until then the target of
// the copy contains a fill pattern.
class OnADevice {
 public:
  OnADevice(const std::string& text, const char* strategy)
      : recipe_(with_level(text, SpillLevel::kHost)),
        run_(plan_run(recipe_, strategy, 0)),
        plan_(run_.planned.plan.view()),
        device_(plan_.arena_bytes, test::test_backend()),
        backend_(device_.backend()) {
    EXPECT_TRUE(linux_port().acquire_host(plan_.spill_bytes, &memory).ok());
  }
  ~OnADevice() { linux_port().release_host(&memory); }
  OnADevice(const OnADevice&) = delete;
  OnADevice& operator=(const OnADevice&) = delete;

  const Plan& plan() const { return plan_; }
  Backend& backend() { return backend_; }
  Status bind_it() { return bind_plan(plan_, backend_, alone_, device_.arena(), trainer, {}, {}, memory); }
  // Returns State after `count` steps; empty if a step failed.
  std::vector<unsigned char> steps(int count) {
    const auto data = open_dataset(recipe_, Split::kTraining);
    for (int s = 0; s < count; ++s) {
      StepReport report;
      if (!train_step(trainer, source_of(*data), report).ok()) return {};
    }
    return bytes_at(trainer, trainer.region(Region::kState), plan_.state_bytes);
  }

  Trainer trainer;
  HostMemory memory;

 private:
  const Recipe recipe_;
  const PlannedRun run_;
  const Plan plan_;
  GuardedDevice device_;
  Backend backend_;
  const Workers alone_ = {.stack_bytes = 1 << 20};
};

TEST_P(HostMemoryOf, LateCopiesGiveTheSameBits) {
  const Recipe recipe = recipe_from(text());
  const RunResult expected = train_plan(plan_run(recipe, "none").planned.plan, recipe, {3, 1, false});
  for (const char* strategy : {"multistage", "h-revolve"}) {
    OnADevice net(text(), strategy);
    ASSERT_TRUE(net.bind_it().ok());
    EXPECT_TRUE(net.steps(3) == expected.state) << strategy;
    uint64_t spilled = 0;
    ASSERT_TRUE(measured_bytes(net.trainer, Region::kSpill, spilled).ok());
    EXPECT_EQ(spilled, net.plan().spill_bytes) << strategy;
  }
}

// The device completes no copy at a wait. The results must then differ, which shows that these
// tests detect a missing wait.
TEST_P(HostMemoryOf, ALostWaitWouldShow) {
  const Recipe recipe = recipe_from(text());
  const RunResult expected = train_plan(plan_run(recipe, "none").planned.plan, recipe, {3, 1, false});
  OnADevice net(text(), "h-revolve");
  net.backend().host.await = [](const KernelContext&, uint32_t) { return ok_status(); };
  ASSERT_TRUE(net.bind_it().ok());
  EXPECT_FALSE(net.steps(3) == expected.state);
}

INSTANTIATE_TEST_SUITE_P(Recipes, HostMemoryOf, ::testing::Range<size_t>(0, 4));

TEST(HostMemory, BindWantsMemoryThatHoldsThePlan) {
  OnADevice net(gpt_recipe(), "h-revolve");
  const HostMemory whole = net.memory;
  for (const HostMemory& wrong :
       {HostMemory{}, HostMemory{whole.base, whole.bytes - 1}, HostMemory{whole.base + 128, whole.bytes}}) {
    net.memory = wrong;
    EXPECT_EQ(net.bind_it().code, Code::kUnsupported);
  }
  net.memory = whole;
  EXPECT_TRUE(net.bind_it().ok());
}

// The host memory is larger than the plan needs. measured_bytes() must also find a changed canary
// after the end of the plan.
TEST(HostMemory, WhatIsWrittenBehindThePlanIsMeasured) {
  OnADevice net(gpt_recipe(), "h-revolve");
  HostMemory larger;
  ASSERT_TRUE(linux_port().acquire_host(net.plan().spill_bytes + 4096, &larger).ok());
  std::swap(net.memory, larger);
  ASSERT_TRUE(net.bind_it().ok());
  uint64_t bytes = 1;
  ASSERT_TRUE(measured_bytes(net.trainer, Region::kSpill, bytes).ok());
  EXPECT_EQ(bytes, 0u);
  net.memory.base[net.plan().spill_bytes + 1000] ^= 1;
  ASSERT_TRUE(measured_bytes(net.trainer, Region::kSpill, bytes).ok());
  EXPECT_EQ(bytes, net.plan().spill_bytes + 1024);
  std::swap(net.memory, larger);
  linux_port().release_host(&larger);
}

}  // namespace
}  // namespace reprise
