// Least makespan to reverse equal steps with two levels of storage: memory, free to use, and a disk that costs.
// Herrmann and Pallez, "H-Revolve: a framework for adjoint computation on synchronous hierarchical platforms", ACM TOMS 46 (2020).
#pragma once

#include <cstdint>

namespace reprise {

struct TwoLevels {
  uint64_t steps = 1;      // to reverse; the paper's l is one less
  uint64_t ram_slots = 1;  // at least one
  uint64_t disk_slots = 0;
  double write_cost = 0;  // of one value to disk
  double read_cost = 0;
};

// Forward and backward steps cost 1 each; the recording forwards are not counted, the first write of the input is.
// Throws UserError for no step, no memory slot, a cost that is negative or not finite, or more than 10^10 sums to form.
double two_level_makespan(const TwoLevels& problem);

}  // namespace reprise
