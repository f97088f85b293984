// The kernels of the core that the program's plan is for: large or small, as its recipe says.
// Here because the tests' programs train whichever plan they are given.
#pragma once

#include "plan.h"

#include "lib/cpu/cpu_plan_backend.h"

namespace reprise {

constexpr CpuSize kPlanCore = core_of(generated::kPlan);

inline Status choose_machine_of_plan(CpuMachine& machine) {
  return choose_plan_machine<kernels_called(generated::kPlan), kPlanCore>(machine);
}
inline Backend plan_backend(const CpuMachine& machine) { return cpu_backend_of<kernels_called(generated::kPlan), kPlanCore>(machine); }

}  // namespace reprise
