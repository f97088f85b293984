// Flops and bytes of a plan's whole step, recomputation included. Plans and reports state both,
// because bytes are scarcer than flops on small machines.
#pragma once

#include "tools/plan/lowering/owned_plan.h"
#include "tools/plan/graph/cost.h"

namespace reprise {

// Returns the sum of CallCost over every row of the micro-batches and of the update. A row's bytes
// are the minimum of this row alone, so data that a cache keeps from one row to the next counts in
// both rows.
CallCost step_cost(const OwnedPlan& plan);

}  // namespace reprise
