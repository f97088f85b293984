// Fixed splits of a kernel's work: blocks of elements, chunks of rows, tiles of channels. A split
// decides the order of sums, and so the bits. It follows from the shape alone, never from the
// number of workers.
#pragma once

#include "lib/assert.h"
#include "lib/port.h"

namespace reprise {

constexpr uint64_t kBlockElements = 16384;  // 64 KiB of floats: much more work than starting a task; fits a cache

constexpr uint64_t divide_up(uint64_t a, uint64_t b) { return (a + b - 1) / b; }
constexpr uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }
constexpr uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

// Divides [0, total) into pieces of `size` elements; the last piece may be shorter.
struct Partition {
  uint64_t total = 0;
  uint64_t size = 1;

  constexpr uint32_t count() const { return static_cast<uint32_t>(divide_up(total, size)); }
  constexpr uint64_t begin(uint32_t i) const { return i * size; }
  constexpr uint64_t end(uint32_t i) const { return smaller(total, (i + uint64_t{1}) * size); }
};

// Returns a split of [0, total) into at most `maximum` pieces. Each piece has at least `minimum`
// elements, except that the last piece may be shorter.
constexpr Partition split_at_most(uint64_t total, uint64_t maximum, uint64_t minimum) {
  return {total, larger(larger(minimum, 1), divide_up(total, larger(maximum, 1)))};
}

// Returns a split of rows of C elements into pieces of about kBlockElements elements.
constexpr Partition split_rows(uint64_t rows, uint64_t C) { return {rows, larger(1, kBlockElements / larger(C, 1))}; }

// Calls body(begin, end) for every piece, on any worker.
template <typename F>
void for_each_piece(const Workers& workers, const Partition& split, const F& body) {
  REPRISE_ASSERT(split.size > 0 && split.count() == divide_up(split.total, split.size),
                 "the pieces of a split cover all elements, and 32 bits count them");
  parallel_for(workers, split.count(), [&](uint32_t i) { body(split.begin(i), split.end(i)); });
}

}  // namespace reprise
