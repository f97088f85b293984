// Mutants: copies of a good plan, each with one thing wrong, for the two judges to reject: check_test.cpp and replay_test.cpp.
// Here because a judge that has never refused anything proves nothing; works on any plan, hand-made or a planner's.
// What is wrong is known from how the mutant was made: no judge is asked.
#pragma once

#include "lib/check.h"
#include "tools/lowering/owned_plan.h"

namespace reprise::testing {

struct PlanMutant {
  std::string name;  // kind and place, enough to make it again with the same seed
  OwnedPlan plan;
  std::vector<Fault> acceptable;  // what check may answer; kNone only for semantic mutants
  bool semantic = false;          // safe to run or not, it computes something else: the replay must reject it
};

// One mutant of every kind that this plan has a place for; the seed picks the place.
std::vector<PlanMutant> make_mutants(const OwnedPlan& good, uint64_t seed);

}  // namespace reprise::testing
