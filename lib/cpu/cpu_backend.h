// The CPU backend: the table that dispatch calls.
// Here so that a product can name the CPU without naming its kernels.
#pragma once

#include "lib/backend.h"
#include "lib/cpu/cpu_machine.h"

namespace reprise {

// The table points into `machine`, which must outlive it.
Backend cpu_backend(const CpuMachine& machine);

}  // namespace reprise
