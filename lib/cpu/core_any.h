// A core of which only the CPU features are known: it has the default values of CpuCore.
#pragma once

#include "lib/cpu/cpu_core.h"

namespace reprise {

inline constexpr CpuCore kAnyCore = {.is_here = [] { return true; }};

}  // namespace reprise
