// AMD cores with AVX2 or AVX-512; Zen 3 to Zen 5 were measured (tests/bench/pages/RESULTS.md). The
// cores are recognised by vendor, because no CPUID feature reports the bandwidth of the third-level
// cache.
#pragma once

#include "lib/cpu/cpu_core.h"

namespace reprise {

inline constexpr CpuCore kZenCore = {
    .is_here = [] {
#if defined(__x86_64__)
      return __builtin_cpu_is("amd") != 0;
#else
      return false;
#endif
    },
    .third_feeds_tiles = true,
};

}  // namespace reprise
