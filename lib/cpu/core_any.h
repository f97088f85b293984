// A core of which no more is known than its features: the values of cpu_core.h.
#pragma once

#include "lib/cpu/cpu_core.h"

namespace reprise {

inline constexpr CpuCore kAnyCore = {.is_here = [] { return true; }};

}  // namespace reprise
