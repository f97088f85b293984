// Measures which blocking is fastest on this machine, starting from the blocking that
// choose_blocking() derives. The values are measured because they cannot be derived for every new
// processor: on one Xeon two of the values change the speed by 4 to 9 percentage points of peak. A
// blocking changes speed only, never a bit of a result. The caller provides the clock.
#pragma once

#include "lib/cpu/cpu_machine.h"

namespace reprise {

// Version of a measured blocking. Change it if a kernel uses the same numbers in another way:
// earlier measurements are then invalid.
constexpr uint32_t kTuningVersion = 2;
constexpr uint64_t kTuningBytes = uint64_t{16} << 20;  // bytes of memory for measure_blocking(), aligned to kAlignment

struct TuningClock {
  double (*seconds)();  // returns seconds of a monotonic clock
  // Maximum seconds for all measurements together. A slow machine skips some measurements and keeps
  // the derived values.
  double at_most = 0.25;
};

// Returns the fastest blocking that it measured; returns the machine's own blocking for a small
// core. Times products and convolutions of typical sizes on all workers, with the candidates in
// alternation. A candidate replaces the current value if it is at least 3% faster than that value
// in two measurements: one with all candidates, and one with these two alone. Overwrites the
// kTuningBytes of `memory`; allocates nothing.
CpuBlocking measure_blocking(const CpuMachine& machine, const Workers& workers, const TuningClock& clock, void* memory);

}  // namespace reprise
