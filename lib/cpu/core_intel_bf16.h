// Intel cores with AVX512-BF16: Cooper Lake, Sapphire Rapids to Granite Rapids. The measured core
// had 48 KiB of first-level and 2 MiB of second-level cache.
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
    // Products of bf16 by vdpbf16ps reached 46% of the peak of f32; products in f32 reached 70 to
    // 78%. So bf16 is widened to f32, unless the level has AMX.
    .multiplies_pairs = false,
    // Packing is worth 4 to 9 percentage points of peak, and allows blocks of B that leave space
    // for A in L2.
    .packs_a = true,
};

}  // namespace reprise
