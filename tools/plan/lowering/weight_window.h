// Places the streamed weights of one program in the window, a part of memory that is filled
// repeatedly by loads from the file of weights. The order of a program's rows determines when each
// weight is used next, so all choices are made before the program runs.
//
//   window   | w1 | w2 |  w3   |   row 7 reads w4: it replaces the weights whose next use is
//            |   w4    |  w3   |   farthest away, after their last use, while other rows compute
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <stdexcept>
#include <vector>

namespace reprise {

// Unit of direct reads, which bypass the page cache: addresses, sizes and offsets in the file are
// multiples of it.
constexpr uint64_t kStreamAlignment = 4096;
constexpr uint64_t align_to(uint64_t bytes, uint64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// Thrown if a program's rows cannot be lowered with the given window.
struct WindowTooSmall : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct WeightWindow {
  std::set<uint32_t> streamed;    // indices in State; empty: no weight is streamed
  // Indices of the streamed tables of which an embedding reads only the rows of its tokens.
  std::set<uint32_t> gathered;
  uint64_t bytes = 0;
  uint64_t region_start = 0;      // offset of every program's region in the arena
  uint32_t shards = 1;  // number of slices of the file's contents, one in each rank; 1: the file is not sliced
};

struct WeightUse {
  uint32_t row;
  uint32_t weight;  // the caller's index of the weight
};

// One load of a weight. The weight is at `offset` in the window from the load's start, before
// `start_row`, to the end of `last_row`. The load must be complete before `first_row`.
struct WeightLoad {
  uint32_t weight;
  uint64_t offset;
  uint32_t start_row, first_row, last_row;
};

// Returns the loads in the order of their first uses, which is also the order in which they start.
// Returns nothing if the window is smaller than the weights of one row. `uses` must be in the order
// of rows, and bytes[weight] multiples of kStreamAlignment.
//
// A weight that is used and not present is loaded. It replaces the weights whose next use is
// farthest away (Belady 1966). If several places are equal in this, the one that is free first is
// chosen. If fragmentation leaves no place for one row's weights, they are placed contiguously from
// the window's start.
std::optional<std::vector<WeightLoad>> fill_window(const std::vector<WeightUse>& uses,
                                                   const std::vector<uint64_t>& bytes, uint64_t window_bytes);

}  // namespace reprise
