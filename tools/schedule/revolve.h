// Optimal reversal of equal steps with s slots: Griewank and Walther, "Algorithm 799: revolve", ACM TOMS 26 (2000).
// The closed formula and the split are known facts that other schedules are tested against (PLANNING 4).
#pragma once

#include <cstdint>

namespace reprise {

// beta(s, r) = C(s + r, s), the longest chain that s slots reverse with no step run more than r times beside its recording.
// Saturates at UINT64_MAX. r = -1 gives 0.
uint64_t revolve_reach(uint64_t slots, int64_t repeats);

// t(s, l) = r l - beta(s + 1, r - 1), r the least integer with beta(s, r) >= l: forward steps beside the l recording ones.
// `slots` counts the slot of the chain's input. Throws UserError if slots < 1 or steps < 1.
uint64_t revolve_extra_forwards(uint64_t steps, uint64_t slots);

// Steps to advance before the next checkpoint, for 2 <= steps and 2 <= slots: one of the optimal splits.
uint64_t revolve_split(uint64_t steps, uint64_t slots);

}  // namespace reprise
