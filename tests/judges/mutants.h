// Mutants are copies of a correct plan with one planted fault each. A judge must reject them
// (check_test.cpp, replay_test.cpp), which shows that the judge detects faults. Any correct plan
// can be mutated, whether a person or the planner made it. The expected fault follows from the kind
// of the change; no judge is asked for it.
#pragma once

#include "lib/check.h"
#include "tools/plan/lowering/owned_plan.h"

namespace reprise::testing {

struct PlanMutant {
  std::string name;  // kind, program, row and argument; with the seed they identify the mutant
  OwnedPlan plan;
  std::vector<Fault> acceptable;  // faults that check may report; kNone is only in semantic mutants
  bool semantic = false;          // true: computes wrong values, so the replay must reject it
};

// Returns one mutant of each kind that can be made from the plan. If several rows, slots or
// arguments are suitable, the seed selects one.
std::vector<PlanMutant> make_mutants(const OwnedPlan& good, uint64_t seed);

}  // namespace reprise::testing
