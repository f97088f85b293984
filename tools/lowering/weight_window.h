// Streamed weights of one program: from when to when each lies where in the window, a part of memory that loads from the file of weights fill
// again and again. Here because the order of a program's rows says exactly when each weight is wanted next, so that the choice can be made before
// anything runs.
//
//   window   | w1 | w2 |  w3   |            row 7 wants w4: it takes the place of those whose next use is farthest away, as soon as they have
//            |   w4    |  w3   |            been used for the last time, and travels while the rows in between compute
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <stdexcept>
#include <vector>

namespace reprise {

// What a device reads at once, past the page cache: addresses, sizes and places in the file are multiples of it.
constexpr uint64_t kStreamAlignment = 4096;
constexpr uint64_t align_to(uint64_t bytes, uint64_t alignment) { return (bytes + alignment - 1) / alignment * alignment; }

// Thrown where a program's rows cannot be lowered with the window that they were given.
struct WindowTooSmall : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct WeightWindow {
  std::set<uint32_t> streamed;    // places in State; empty: no weight is streamed
  std::set<uint32_t> gathered;    // of these, tables of which an embedding wants the rows of its tokens alone
  uint64_t bytes = 0;
  uint64_t region_start = 0;      // of every program's region in the arena
  uint32_t shards = 1;            // that ranks hold the file's content in, among them; 1: it stays in the file
};

struct WeightUse {
  uint32_t row;
  uint32_t weight;  // an index of whoever asks
};

// A weight lies at `offset` in the window from the load's start, before `start_row`, to the end of `last_row`; the load must be done before
// `first_row`.
struct WeightLoad {
  uint32_t weight;
  uint64_t offset;
  uint32_t start_row, first_row, last_row;
};

// `uses` in the order of their rows; bytes[weight] are multiples of kStreamAlignment. Loads come in the order of their first uses, which is the
// order in which they start. A weight is loaded when it is wanted and not there. It replaces, of all places where it fits, those weights whose
// next use is the farthest away (Belady 1966), and of equal places the one that is free first. Where the weights of one row find no places so,
// because the window is in pieces, they lie side by side from its start. None: the window has fewer bytes than one row wants.
std::optional<std::vector<WeightLoad>> fill_window(const std::vector<WeightUse>& uses, const std::vector<uint64_t>& bytes, uint64_t window_bytes);

}  // namespace reprise
