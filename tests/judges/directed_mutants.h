// Mutants that each aim at one rule of the proof: sizes larger than what lies in them, values without meaning, host slots exchanged, and
// rows of the update lost, doubled or out of order. They are the same for every seed, and check() must name exactly their fault.
#pragma once

#include "tests/judges/mutants.h"

namespace reprise::testing {

// Every one that this plan has a place for.
std::vector<PlanMutant> make_directed_mutants(const OwnedPlan& good);

}  // namespace reprise::testing
