// The kernels of the core that the program's plan is for: large or small, as its recipe says.
// Here because the tests' programs train whichever plan they are given.
#pragma once

#include "plan.h"

#include "lib/cpu/cpu_plan_backend.h"
#include "lib/same_state.h"

namespace reprise {

constexpr CpuSize kPlanCore = same_text(generated::kPlan.backend, kCpuSmallRules.name) ? CpuSize::kSmall : CpuSize::kLarge;

inline Status choose_plan_machine(CpuMachine& machine) {
  return choose_cpu_machine(machine, GemmTileChoice::kBaseline, VectorLevel::kBaseline, {}, kPlanCore);
}
inline Backend plan_backend(const CpuMachine& machine) { return cpu_backend_of<kernels_called(generated::kPlan), kPlanCore>(machine); }

}  // namespace reprise
