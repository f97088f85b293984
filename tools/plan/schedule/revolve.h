// Optimal reversal of equal steps with s slots: Griewank and Walther, "Algorithm 799: revolve", ACM
// TOMS 26 (2000). Other schedules are tested against the closed formula and the split (PLANNING 4).
#pragma once

#include <cstdint>

namespace reprise {

// Returns beta(s, r) = C(s + r, s): the longest chain that s slots reverse if no step runs more
// than r times in addition to its recording. Saturates at UINT64_MAX; 0 for r = -1.
uint64_t revolve_reach(uint64_t slots, int64_t repeats);

// Returns t(s, l) = r l - beta(s + 1, r - 1): forward steps in addition to the l recording ones. r
// is the minimum integer with beta(s, r) >= l. `slots` includes the slot of the chain's input.
// Throws UserError if slots < 1 or steps < 1.
uint64_t revolve_extra_forwards(uint64_t steps, uint64_t slots);

// Returns the number of steps to advance before the next checkpoint; it is one of the optimal
// choices. Requires steps >= 2 and slots >= 2.
uint64_t revolve_split(uint64_t steps, uint64_t slots);

}  // namespace reprise
