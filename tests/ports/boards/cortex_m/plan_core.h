// Functions that choose the backend of the compiled-in plan: the kernels of a large or a small
// core, as the plan's recipe states. With them the tests' programs can train any plan with which
// they are built.
#pragma once

#include "plan.h"

#include "lib/cpu/cpu_plan_backend.h"

namespace reprise {

constexpr CpuSize kPlanCore = core_of(generated::kPlan);

inline Status choose_machine_of_plan(CpuMachine& machine) {
  return choose_plan_machine<kernels_called(generated::kPlan), kPlanCore>(machine);
}
inline Backend plan_backend(const CpuMachine& machine) {
  return cpu_backend_of<kernels_called(generated::kPlan), kPlanCore>(machine);
}

}  // namespace reprise
