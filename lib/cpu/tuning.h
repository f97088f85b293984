// Measures which blocking is fastest on the machine that it runs on, beginning with the one that choose_blocking() derives.
// Here because nobody can derive the next processor: on one Xeon two of these numbers are worth 4 to 9 points of peak.
// It must change nothing but seconds, and it reads no clock of its own.
#pragma once

#include "lib/cpu/cpu_machine.h"

namespace reprise {

constexpr uint32_t kTuningVersion = 2;  // raised when a kernel goes another way with the same numbers: what was measured before is then void
constexpr uint64_t kTuningBytes = uint64_t{16} << 20;  // of memory that measure_blocking() works in, aligned to kAlignment

struct TuningClock {
  double (*seconds)();    // of a clock that never goes back
  double at_most = 0.25;  // seconds for all measurements; of a slow machine some are left out, and what was derived stands
};

// Products of the sizes that trainings have, by all workers, in turns: a number is taken where it is at least 3% faster than what was derived,
// among others and once more beside that alone.
// `memory` is written to. Takes no heap.
CpuBlocking measure_blocking(const CpuMachine& machine, const Workers& workers, const TuningClock& clock, void* memory);

}  // namespace reprise
