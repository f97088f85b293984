// The CPU backend with the kernels that one plan calls and no more: whatever else the library has is not linked.
// Here because a board's flash has room for a plan's dozen kernels, not for all. The plan must be a constant of the program:
//
//   #include "plan.h"
//   const Backend backend = cpu_backend_of<kernels_called(kPlan)>(machine);
#pragma once

#include "lib/assert.h"
#include "lib/cpu/cpu_host_access.h"
#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/cpu_rules.h"

namespace reprise {

namespace contract {
// Backend::set for those that are called; the others' names are not even looked up.
template <KernelCalls kCalls>
struct CalledKernels {
  Backend& backend;

  template <typename K, typename Stored, NamedKernel<K, Stored> kFunction>
  constexpr void set() {
    if constexpr (kCalls.called[kKernelIndex<K>][kStorageIndex<Stored>]) backend.set<K, Stored, kFunction>();
  }
};
// A table's name. Its rules have done their work when the compiler has proved the plan.
constexpr BackendRules name_alone(const BackendRules& rules) {
  BackendRules name = {.name = rules.name, .header = rules.header, .constant = rules.constant};
  name.frame_stack_bytes = rules.frame_stack_bytes;
  name.proves = false;
  return name;
}
// Whether a kernel of the plan multiplies by the machine's tile, as a small core's own do not.
template <typename... K>
constexpr bool calls_one_of(const KernelCalls& calls, TypeList<K...>) {
  return ((calls.called[kKernelIndex<K>][0] || calls.called[kKernelIndex<K>][1]) || ...);
}
using KernelsByTiles = TypeList<AttentionForward, AttentionBackward, ProductForward, PairLossBackward, PairLossEvaluate, MuonUpdate, ApolloUpdate>;

template <CpuSize kSize>
inline constexpr BackendRules kCpuName = name_alone(cpu_rules_of(kSize));
}  // namespace contract

// choose_cpu_machine() of the tile and the level that every processor has, for these kernels on this core.
template <KernelCalls kCalls, CpuSize kSize>
Status choose_plan_machine(CpuMachine& machine) {
  if constexpr (kSize == CpuSize::kSmall && !contract::calls_one_of(kCalls, contract::KernelsByTiles{})) {
    return choose_small_core(machine);
  } else {
    return choose_cpu_machine(machine, GemmTileChoice::kBaseline, kSize == CpuSize::kSmall ? VectorLevel::kBaseline : kCommonLevel, {}, kSize);
  }
}

// For bind_proved: the table has no rules to prove a plan by. It points into `machine`, which must outlive it and be of that size.
template <KernelCalls kCalls, CpuSize kSize = CpuSize::kLarge>
Backend cpu_backend_of(const CpuMachine& machine) {
  REPRISE_ASSERT(machine.size == kSize, "a backend has the rules of its machine's size");
  Backend backend = {.rules = &contract::kCpuName<kSize>, .kernel_set = machine.kernel_set, .machine = &machine, .host = kCpuHostAccess};
  contract::CalledKernels<kCalls> table{backend};
  add_cpu_kernels<kSize, !kCalls.stores_f32>(table);
  return backend;
}

}  // namespace reprise
