// Flops and bytes of a plan's whole step, recomputation included.
// Here because bytes are scarcer than flops on small machines: plans and reports state both.
#pragma once

#include "tools/lowering/owned_plan.h"
#include "tools/graph/cost.h"

namespace reprise {

// The sum of CallCost over every row of the micro-batches and of the update. A row's bytes are its own least: what a cache carries
// from one row to the next is counted in both.
CallCost step_cost(const OwnedPlan& plan);

}  // namespace reprise
