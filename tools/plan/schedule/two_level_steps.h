// Minimum makespan to reverse equal steps with two levels of storage: memory without a cost, and a
// disk with a cost. Herrmann and Pallez, "H-Revolve: a framework for adjoint computation on
// synchronous hierarchical platforms", ACM TOMS 46 (2020).
#pragma once

#include <cstdint>

namespace reprise {

struct TwoLevels {
  uint64_t steps = 1;      // steps to reverse; the paper's l is one less
  uint64_t ram_slots = 1;  // at least one
  uint64_t disk_slots = 0;
  double write_cost = 0;  // cost to write one value
  double read_cost = 0;
};

// Returns the minimum makespan. Forward and backward steps cost 1 each; a forward that records
// costs nothing. Writing the input to disk costs as much as any write. Throws UserError for no
// step, no memory slot, a cost that is negative or not finite, or more than 10^10 sums.
double two_level_makespan(const TwoLevels& problem);

}  // namespace reprise
