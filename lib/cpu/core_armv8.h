// AArch64 cores. No such core has been timed: the choices follow from the bytes that a Cortex-A78AE
// and a wide Arm core move (tests/bench/pages/TRAFFIC.md).
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
    .tiles = {GemmTileChoice::kBlis, GemmTileChoice::kNeon, GemmTileChoice::kWidest},
    // Depth-major panels move 2.6 times as many bytes from L2 if they are read in place.
    .packs_a = true,
};

}  // namespace reprise
