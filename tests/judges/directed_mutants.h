// Mutants that each violate one rule of the proof: regions larger than their contents, meaningless
// values, exchanged host slots, and rows of the update that are missing, doubled or in another
// order. No random number selects them. check() must report exactly the planted fault.
#pragma once

#include "tests/judges/mutants.h"

namespace reprise::testing {

// Returns one mutant of every kind that can be made from the plan.
std::vector<PlanMutant> make_directed_mutants(const OwnedPlan& good);

}  // namespace reprise::testing
