// Fixed splits of a kernel's work: blocks of elements, chunks of rows, tiles of channels.
// Here because the split decides the order of sums: it follows from the shape alone, never from the workers.
// It must not know how many workers there are.
#pragma once

#include "lib/port.h"

namespace reprise {

constexpr uint64_t kBlockElements = 16384;  // 64 KiB of floats: large against the cost of a task, small against a cache

constexpr uint64_t divide_up(uint64_t a, uint64_t b) { return (a + b - 1) / b; }
constexpr uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }
constexpr uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

// [0, total) in pieces of `size`, the last one shorter.
struct Partition {
  uint64_t total = 0;
  uint64_t size = 1;

  constexpr uint32_t count() const { return static_cast<uint32_t>(divide_up(total, size)); }
  constexpr uint64_t begin(uint32_t i) const { return i * size; }
  constexpr uint64_t end(uint32_t i) const { return smaller(total, (i + uint64_t{1}) * size); }
};

// At most `most` pieces, each of at least `least` (unless there is less than that in all).
constexpr Partition split_at_most(uint64_t total, uint64_t most, uint64_t least) {
  return {total, larger(larger(least, 1), divide_up(total, larger(most, 1)))};
}

// Rows of C elements, about kBlockElements of them together.
constexpr Partition split_rows(uint64_t rows, uint64_t C) { return {rows, larger(1, kBlockElements / larger(C, 1))}; }

// Calls body(begin, end) for every piece, on any worker.
template <typename F>
void for_each_piece(const Workers& workers, const Partition& split, const F& body) {
  parallel_for(workers, split.count(), [&](uint32_t i) { body(split.begin(i), split.end(i)); });
}

}  // namespace reprise
