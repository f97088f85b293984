// Implements step_cost.h: adds the costs of all rows that a step runs.
#include "tools/plan/costs/step_cost.h"

namespace reprise {

CallCost step_cost(const OwnedPlan& plan) {
  CallCost sum;
  for_each_step_row(plan, [&](const OwnedProgram& program, const Row& row, uint32_t times) {
    const CallCost cost = kernel_cost(kernel_call(plan, program, row), plan.attributes);
    sum.flops += times * cost.flops;
    sum.bytes += times * cost.bytes;
  });
  return sum;
}

}  // namespace reprise
