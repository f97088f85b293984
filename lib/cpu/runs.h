// Copies a run of contiguous elements, or adds it to its destination. columns.cpp and transpose.cpp
// use it.
#pragma once

#include <cstring>

#include "lib/bf16.h"
#include "lib/cpu/vector_level.h"

namespace reprise {
namespace run_detail {

template <typename Stored>
REPRISE_INLINE void add_run_body(Stored* to, const Stored* from, uint64_t n) {
  REPRISE_INDEPENDENT
  for (uint64_t i = 0; i < n; ++i) to[i] = float{to[i]} + float{from[i]};
}
REPRISE_STORAGE_LEVELS(add_run, add_run_body, (Stored* to, const Stored* from, uint64_t n), (to, from, n))

}  // namespace run_detail

// Computes to[n] (+)= from[n]: copies, or adds if `adds`.
template <typename Stored>
void store_run(VectorLevel level, Stored* to, const Stored* from, uint64_t n, bool adds) {
  if (adds) {
    run_detail::add_run(level, to, from, n);
  } else {
    std::memcpy(static_cast<void*>(to), from, n * sizeof(Stored));
  }
}

}  // namespace reprise
