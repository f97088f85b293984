// The CPU backend's table.
#include "lib/cpu/cpu_backend.h"

#include "lib/cpu/cpu_host_access.h"
#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_rules.h"

namespace reprise {

Backend cpu_backend(const CpuMachine& machine) {
  Backend table = {.rules = &cpu_rules_of(machine.size),
                   .kernel_set = machine.kernel_set,
                   .machine = &machine,
                   .host = kCpuHostAccess};
  if (machine.size == CpuSize::kSmall) add_cpu_kernels<CpuSize::kSmall>(table);
  else add_cpu_kernels<CpuSize::kLarge>(table);
  return table;
}

}  // namespace reprise
