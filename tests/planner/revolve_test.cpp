// Tests revolve and h-revolve on chains of equal steps. The closed formula, the recursion,
// simulated plans and published numbers must agree. Tests of other strategies compare with these
// two.
#include "tools/plan/schedule/revolve.h"

#include <gtest/gtest.h>

#include "tests/schedule_goldens.h"
#include "tools/files/io/error.h"
#include "tools/plan/schedule/schedule.h"
#include "tools/plan/schedule/simulate.h"
#include "tools/plan/schedule/two_level_steps.h"

namespace reprise {
namespace {

TEST(Revolve, PublishedFigures) {
  EXPECT_EQ(revolve_extra_forwards(10, 3), 15u);
  EXPECT_EQ(revolve_extra_forwards(50, 5), 122u);
  EXPECT_EQ(revolve_extra_forwards(100, 5), 316u);
  EXPECT_EQ(revolve_extra_forwards(200, 10), 522u);
  EXPECT_EQ(revolve_extra_forwards(500, 8), 1785u);
  EXPECT_EQ(revolve_extra_forwards(1000, 10), 3636u);
  EXPECT_EQ(revolve_extra_forwards(1, 1), 0u);
  EXPECT_EQ(revolve_extra_forwards(1, 7), 0u);
  EXPECT_EQ(revolve_extra_forwards(1000000000, 1), 499999999500000000u);
}

TEST(Revolve, ReachIsBinomialAndSaturates) {
  EXPECT_EQ(revolve_reach(3, 2), 10u);
  EXPECT_EQ(revolve_reach(3, 0), 1u);
  EXPECT_EQ(revolve_reach(3, -1), 0u);
  EXPECT_EQ(revolve_reach(60, 60), UINT64_MAX);
}

TEST(Revolve, RefusesWhatIsNoProblem) {
  EXPECT_THROW(revolve_extra_forwards(0, 3), UserError);
  EXPECT_THROW(revolve_extra_forwards(3, 0), UserError);
}

// Tapes have 1,000 bytes and boundaries one byte. The memory contains one tape and s + 3
// boundaries, so that the plan has s slots.
TEST(Revolve, FormulaRecursionAndPlanAgree) {
  const auto recursion = extra_forwards_by_recursion(10, 200);
  for (int s = 1; s <= 10; ++s) {
    for (int l = 1; l <= 200; ++l) {
      ASSERT_EQ(revolve_extra_forwards(l, s), recursion[s][l]) << "slots " << s << ", steps " << l;
      if (l % 7 > 1 && l > 40) continue;  // plans of all lengths up to 40, and of some larger lengths
      const Chain chain = unit_chain(l, 1000);
      const Schedule plan =
          make_schedule(chain, {.strategy = "revolve", .memory_bytes = static_cast<uint64_t>(s) + 1003});
      ASSERT_TRUE(plan.feasible) << "slots " << s << ", steps " << l;
      ASSERT_EQ(plan.makespan - 3.0 * l, static_cast<double>(recursion[s][l])) << "slots " << s << ", steps " << l;
      ASSERT_LE(plan.peak_bytes, static_cast<uint64_t>(s) + 1003);
    }
  }
}

TEST(Revolve, OptimalIsRevolveOnEqualSteps) {
  for (uint64_t tape_bytes : {1000u, 1000000u}) {
    for (int l : {1, 2, 3, 4, 7, 10, 23, 40, 64}) {
      for (int s = 1; s <= 6; ++s) {
        const Chain chain = unit_chain(l, tape_bytes);
        const Schedule plan =
            make_schedule(chain, {.memory_bytes = static_cast<uint64_t>(s) + tape_bytes + 3, .unit = 1});
        ASSERT_TRUE(plan.feasible) << "slots " << s << ", steps " << l;
        ASSERT_EQ(plan.makespan - 3.0 * l, static_cast<double>(revolve_extra_forwards(l, s)))
            << "slots " << s << ", steps " << l;
      }
    }
  }
  const Schedule plan = make_schedule(unit_chain(200, 1000), {.memory_bytes = 10 + 1003});
  EXPECT_EQ(plan.makespan - 600, 522);
}

TEST(Revolve, KeepsTheSlotsAskedFor) {
  for (int slots = 1; slots <= 14; ++slots) {
    const Schedule plan = make_schedule(unit_chain(12, 1000), {.strategy = "revolve", .slots = slots});
    EXPECT_EQ(plan.makespan - 36, static_cast<double>(revolve_extra_forwards(12, static_cast<uint64_t>(slots))))
        << slots;
  }
}

TEST(HRevolve, PublishedFigures) {
  EXPECT_EQ(two_level_makespan({.steps = 10, .ram_slots = 1, .disk_slots = 1, .write_cost = 2, .read_cost = 2}), 37);
  EXPECT_EQ(two_level_makespan({.steps = 11, .ram_slots = 2, .disk_slots = 1, .write_cost = 1, .read_cost = 1}), 32);
  EXPECT_EQ(two_level_makespan({.steps = 51, .ram_slots = 3, .disk_slots = 10, .write_cost = 2, .read_cost = 2}), 179);
}

TEST(HRevolve, WithoutDiskIsRevolveAndMoreNeverHurts) {
  for (uint64_t steps : {1u, 2u, 5u, 30u}) {
    for (uint64_t ram = 1; ram <= 5; ++ram) {
      const double without = two_level_makespan({.steps = steps, .ram_slots = ram});
      EXPECT_EQ(without, static_cast<double>(revolve_extra_forwards(steps, ram) + steps))
          << steps << " steps, " << ram << " slots";
      double before = without;
      for (uint64_t disk = 1; disk <= 4; ++disk) {
        const double with = two_level_makespan(
            {.steps = steps, .ram_slots = ram, .disk_slots = disk, .write_cost = 1.5, .read_cost = 0.5});
        EXPECT_LE(with, before);
        before = with;
      }
      EXPECT_EQ(two_level_makespan(
                    {.steps = steps, .ram_slots = ram, .disk_slots = 3, .write_cost = 1e9, .read_cost = 1e9}),
                without);
    }
  }
}

TEST(HRevolve, RefusesWhatIsNoProblem) {
  EXPECT_THROW(two_level_makespan({.steps = 0}), UserError);
  EXPECT_THROW(two_level_makespan({.steps = 3, .ram_slots = 0}), UserError);
  EXPECT_THROW(two_level_makespan({.steps = 3, .disk_slots = 1, .write_cost = -1}), UserError);
  EXPECT_THROW(two_level_makespan({.steps = 1000000, .ram_slots = 10}), UserError);
}

}  // namespace
}  // namespace reprise
