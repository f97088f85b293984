// Packs buffers with lifetimes into one address range: the general layout, for programs that are
// not a chain recursion (PLANNING 6). Greedy orders come first, then branch and bound with a fixed
// effort, so that a plan does not depend on the machine's speed.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/plan/layout/pack_search.h"

namespace reprise {

struct PackOptions {
  // Bytes; any packing that fits is enough. 0: the search returns the lowest packing that it finds.
  uint64_t capacity = 0;
  uint64_t alignment = 1;   // bytes; offsets are multiples of it, and sizes are rounded up to multiples of it
  uint64_t nodes = 20'000;  // placements that the search may try; 0: greedy orders only
  // Time limit of the search; 0: none. A time limit makes the result depend on the machine's speed,
  // so plans have none.
  double seconds = 0;
};

struct Packing {
  bool feasible = false;           // packed_bytes <= capacity, or no capacity was given
  bool proven = false;  // more effort cannot change the result; without a capacity, packed_bytes is the optimum
  uint64_t packed_bytes = 0;       // highest end of the best packing found, feasible or not
  uint64_t lower_bound = 0;        // maximum sum of (rounded) sizes that are live together
  std::vector<uint64_t> offsets;   // parallel to the buffers; of the best packing found
};

// Packs the buffers. More than 3000 buffers are packed by the greedy orders alone. Buffers of 0
// bytes or with lower >= upper get offset 0 and overlap nothing.
Packing pack_buffers(const std::vector<PackBuffer>& buffers, const PackOptions& options = {});

// Asserts that the offsets of the buffers are multiples of `alignment`, that all buffers end within
// `bytes`, and that no two live buffers overlap. Sizes must be multiples of `alignment`.
void assert_packed(const std::vector<PackBuffer>& buffers, const std::vector<uint64_t>& offsets, uint64_t alignment,
                   uint64_t bytes);

// Returns the maximum sum of sizes that are live at one time.
uint64_t largest_live_bytes(const std::vector<PackBuffer>& buffers);

}  // namespace reprise
