// AArch64 cores. None has been measured: TRAFFIC.md counts what a Cortex-A78AE and a wide Arm core move.
#pragma once

#include "lib/cpu/cpu_core.h"

namespace reprise {

inline constexpr CpuCore kArmv8Core = {
    .is_here = [] {
#if defined(__aarch64__)
      return true;
#else
      return false;
#endif
    },
    .tiles = {GemmTileChoice::kBlis, GemmTileChoice::kNeon, GemmTileChoice::kPortable},
    // Panels by depths move 2.6 times as much from L2 when they are read as they lie.
    .packs_a = true,
};

}  // namespace reprise
