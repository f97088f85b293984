// Branch and bound for static memory allocation: finds out whether a set of buffers fits a
// capacity, and its offsets. Greedy packing misses the optimum by 30% and more on hard instances;
// the search finds it or proves that nothing better exists.
#pragma once

#include <cstdint>
#include <vector>

namespace reprise {

struct PackBuffer {
  uint64_t lower = 0;  // half-open lifetime [lower, upper)
  uint64_t upper = 0;
  uint64_t size = 0;
};

enum class SearchAnswer { kFound, kImpossible, kGaveUp };

struct SearchResult {
  SearchAnswer answer = SearchAnswer::kGaveUp;
  std::vector<uint64_t> offsets;   // kFound: parallel to the buffers
  uint64_t min_capacity = 0;     // kImpossible: no smaller capacity is enough
  uint64_t nodes = 0;              // placements tried
};

struct SearchLimits {
  uint64_t nodes = 0;
  double seconds = 0;  // 0: no limit; a limit makes the result depend on the machine's speed
};

// Searches a packing within the capacity. Sizes and lifetimes must be positive. Without a time
// limit the same call always gives the same result.
SearchResult search_packing(const std::vector<PackBuffer>& buffers, uint64_t capacity, const SearchLimits& limits);

}  // namespace reprise
