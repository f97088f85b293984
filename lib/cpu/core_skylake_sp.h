// Intel's Skylake-SP to Cooper Lake: AVX-512 without VBMI2.
#pragma once

#include "lib/cpu/cpu_core.h"

namespace reprise {

inline constexpr CpuCore kSkylakeSpCore = {
    .is_here = [] {
#if defined(__x86_64__)
      return __builtin_cpu_supports("avx512f") && !__builtin_cpu_supports("avx512vbmi2");
#else
      return false;
#endif
    },
    // The core decodes four instructions a cycle, and two of them are wide multiply-adds. The other
    // two are too few to compute the addresses of twelve rows that are read in place.
    .packs_a = true,
};

}  // namespace reprise
