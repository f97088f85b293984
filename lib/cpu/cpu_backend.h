// The CPU backend: the table of kernels that dispatch calls. cpu_backend.cpp fills the table, so
// that a program can use the CPU backend without including the kernels' headers.
#pragma once

#include "lib/backend.h"
#include "lib/cpu/cpu_machine.h"

namespace reprise {

// Returns the CPU backend. The backend points into `machine`, which must outlive it.
Backend cpu_backend(const CpuMachine& machine);

}  // namespace reprise
