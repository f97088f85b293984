// A plan as a program has it: compiled in, or read from a plan file.
#pragma once

#include "lib/plan.h"
#include "lib/port.h"

namespace reprise {

// What plan.h holds, and the board that it was planned for.
struct CompiledPlan {
  const Plan& plan;
  const char* recipe;   // the canonical recipe's text
  const char* summary;  // the plan in a few lines, for a person
  const Port& port;
  const char* hash = "";         // names the plan, as its manifest does
  Span<WrittenPlan> plans = {};  // all of the program, this one among them; empty: this one is alone
  const char* file = "";         // the plan file (filed_plans.h) that it was read from; "": the compiler has proved it
  bool is_filed() const { return *file != 0; }
};

// The program's plan of that number, which must be there.
inline CompiledPlan plan_at(const CompiledPlan& any, uint32_t number) {
  if (any.plans.count == 0) return any;
  const WrittenPlan& written = any.plans[number];
  return {*written.plan, written.recipe, written.summary, any.port, written.hash, any.plans, any.file};
}

// What the program's spill file, or memory of the host, must hold, whichever plan it runs in.
inline uint64_t most_spill_bytes(const CompiledPlan& compiled, SpillLevel level) {
  uint64_t most = spills_to(compiled.plan, level) ? compiled.plan.spill_bytes : 0;
  for (const WrittenPlan& written : compiled.plans) {
    if (spills_to(*written.plan, level) && written.plan->spill_bytes > most) most = written.plan->spill_bytes;
  }
  return most;
}

// Every plan of plan.h, the first in front.
template <uint32_t kCount>
CompiledPlan compiled_plans(const WrittenPlan (&plans)[kCount], const Port& port) {
  return plan_at({*plans[0].plan, "", "", port, "", {plans, kCount}}, 0);
}

}  // namespace reprise
