// Packs buffers with lifetimes into one address range: the general layout, for what is no chain recursion (PLANNING 6).
// Greedy orders first, then branch and bound under a fixed effort, so that a plan never depends on the machine's speed.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/layout/pack_search.h"

namespace reprise {

struct PackOptions {
  uint64_t capacity = 0;    // 0: as low as the effort allows; else any packing within it will do
  uint64_t alignment = 1;   // of every offset; sizes are rounded up to it
  uint64_t nodes = 20'000;  // placements that the search may try; 0: greedy orders only
  double seconds = 0;       // 0: none. A limit in seconds makes the result depend on the machine: not for plans
};

struct Packing {
  bool feasible = false;           // packed_bytes <= capacity, or no capacity was given
  bool proven = false;             // feasible is final, and without a capacity packed_bytes is the optimum
  uint64_t packed_bytes = 0;       // highest end of the best packing found, also where it is not feasible
  uint64_t lower_bound = 0;        // largest sum of (rounded) sizes live together
  std::vector<uint64_t> offsets;   // parallel to the buffers; of the best packing found
};

// Beyond 3000 buffers the greedy orders alone decide. Buffers of 0 bytes or with lower >= upper lie at 0 and touch nothing.
Packing pack_buffers(const std::vector<PackBuffer>& buffers, const PackOptions& options = {});

// Largest sum of sizes live at one time.
uint64_t largest_live_bytes(const std::vector<PackBuffer>& buffers);

}  // namespace reprise
