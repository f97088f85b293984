// A plan as a program uses it: compiled in, or read from a plan file.
#pragma once

#include "lib/plan.h"
#include "lib/port.h"

namespace reprise {

// One plan of a program: the contents of plan.h, and the board for which it was planned.
struct CompiledPlan {
  const Plan& plan;
  const char* recipe;   // text of the canonical recipe
  const char* summary;  // a description of the plan in a few lines, for the user
  const Port& port;
  const char* hash = "";  // identifies the plan; its manifest has the same hash
  // All plans of the program, including this one; empty if the program has only this plan
  Span<WrittenPlan> plans = {};
  const char* file = "";  // the plan file from which it was read (filed_plans.h); "" if it was compiled in
  bool is_filed() const { return *file != 0; }
};

// Returns the program's plan with this number, which must exist.
inline CompiledPlan plan_at(const CompiledPlan& any, uint32_t number) {
  if (any.plans.count == 0) return any;
  const WrittenPlan& written = any.plans[number];
  return {*written.plan, written.recipe, written.summary, any.port, written.hash, any.plans, any.file};
}

// Returns how many bytes the program's spill file, or its host memory, needs: the maximum over all
// plans.
inline uint64_t max_spill_bytes(const CompiledPlan& compiled, SpillLevel level) {
  uint64_t maximum = spills_to(compiled.plan, level) ? compiled.plan.spill_bytes : 0;
  for (const WrittenPlan& written : compiled.plans) {
    if (spills_to(*written.plan, level) && written.plan->spill_bytes > maximum) maximum = written.plan->spill_bytes;
  }
  return maximum;
}

// Returns the first plan in plan.h; its member `plans` has all of them.
template <uint32_t kCount>
CompiledPlan compiled_plans(const WrittenPlan (&plans)[kCount], const Port& port) {
  return plan_at({*plans[0].plan, "", "", port, "", {plans, kCount}}, 0);
}

}  // namespace reprise
