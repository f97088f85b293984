// The CPU backend with only the kernels that one plan calls; the others are not linked. A board's
// flash has space for a plan's dozen kernels, not for all of them. The plan must be a constant of
// the program, because its calls (KernelCalls) are a template argument.
#pragma once

#include "lib/assert.h"
#include "lib/cpu/cpu_host_access.h"
#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/cpu_rules.h"

namespace reprise {

namespace contract {
// Calls Backend::set() for the kernels in kCalls only, so that the others are not linked.
template <KernelCalls kCalls>
struct CalledKernels {
  Backend& backend;

  template <typename K, typename Stored, NamedKernel<K, Stored> kFunction>
  constexpr void set() {
    if constexpr (kCalls.called[kKernelIndex<K>][kStorageIndex<Stored>]) backend.set<K, Stored, kFunction>();
  }
};
// Returns `rules` with its names and the frame's stack bytes only. The other rules are not needed
// after the compiler has proved the plan.
constexpr BackendRules name_alone(const BackendRules& rules) {
  BackendRules name = {.name = rules.name, .header = rules.header, .constant = rules.constant};
  name.frame_stack_bytes = rules.frame_stack_bytes;
  name.proves = false;
  return name;
}
// True if the plan calls one of the kernels K, which multiply by the machine's tile on every size
// of core.
template <typename... K>
constexpr bool calls_one_of(const KernelCalls& calls, TypeList<K...>) {
  return ((calls.called[kKernelIndex<K>][0] || calls.called[kKernelIndex<K>][1]) || ...);
}
using KernelsByTiles = TypeList<AttentionForward, AttentionBackward, ProductForward, PairLossBackward, PairLossEvaluate,
                                MuonUpdate, ApolloUpdate>;

template <CpuSize kSize>
inline constexpr BackendRules kCpuName = name_alone(cpu_rules_of(kSize));
}  // namespace contract

// Chooses a machine for the kernels kCalls on a core of size kSize, with the tile and the vector
// level that every processor has. On a small core, chooses no tile if no kernel needs one.
template <KernelCalls kCalls, CpuSize kSize>
Status choose_plan_machine(CpuMachine& machine) {
  if constexpr (kSize == CpuSize::kSmall && !contract::calls_one_of(kCalls, contract::KernelsByTiles{})) {
    return choose_small_core(machine);
  } else {
    return choose_cpu_machine(machine, GemmTileChoice::kBaseline,
                              kSize == CpuSize::kSmall ? VectorLevel::kBaseline : kCommonLevel, {}, kSize);
  }
}

// Returns a backend for bind_proved(). The backend has no rules with which a plan could be proved.
// It points into `machine`, which must outlive the backend and have size kSize.
template <KernelCalls kCalls, CpuSize kSize = CpuSize::kLarge>
Backend cpu_backend_of(const CpuMachine& machine) {
  REPRISE_ASSERT(machine.size == kSize, "a backend has the rules of its machine's size");
  Backend backend = {.rules = &contract::kCpuName<kSize>,
                     .kernel_set = machine.kernel_set,
                     .machine = &machine,
                     .host = kCpuHostAccess};
  contract::CalledKernels<kCalls> table{backend};
  add_cpu_kernels<kSize, !kCalls.stores_f32>(table);
  return backend;
}

}  // namespace reprise
