// Intel's cores with AVX512-BF16: Cooper Lake, Sapphire Rapids to Granite Rapids. One with 48 KiB and 2 MiB of caches was measured.
#pragma once

#include "lib/cpu/cpu_core.h"

namespace reprise {

inline constexpr CpuCore kIntelBf16Core = {
    .is_here =
        [] {
#if defined(__x86_64__)
          return __builtin_cpu_is("intel") != 0 && __builtin_cpu_supports("avx512bf16") != 0;
#else
          return false;
#endif
        },
    // vdpbf16ps reached 46% of the peak of f32, and f32 itself 70 to 78%. AMX is another matter.
    .multiplies_pairs = false,
    // 4 to 9 points of peak, and blocks of B that leave L2 room for A.
    .packs_a = true,
};

}  // namespace reprise
