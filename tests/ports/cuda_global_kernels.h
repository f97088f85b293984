// The host side of small kernels that sum rows, right ones and ones with one planted fault each in how they touch global memory.
// Here so that the judge of global memory (ptx_machine.h) meets faults as nvcc compiles them.
#pragma once

#include <cstdint>

#include "lib/status.h"

namespace reprise::test {

// sums[tile][c]: of x[rows][columns], over tiles of 128 rows.
struct TileSumArgs {
  float* sums = nullptr;
  const float* x = nullptr;
  uint64_t rows = 0;
  uint32_t columns = 0;
};
enum class TileSumKind : uint8_t {
  kRight,
  kOneRowTooMany,  // the row behind the last is a row
  kMaskedRow,      // rows past the last are read, and count for nothing
  kMaskedCopy,     // the same by asynchronous copies, of which all bytes are said to be valid
  kMisaligned,     // 16 bytes are loaded wherever a row begins
  kInputWritten,   // the sum is kept in x
  kNarrowIndex,    // an element's place is computed in 32 bits
};
Status launch_tile_sums(const TileSumArgs& args, TileSumKind kind, void* queue);

// total[c] = sum over the rows, by whichever block counts last. partials[tile][c]; *count is 0 before.
struct TotalArgs {
  float* total = nullptr;
  float* partials = nullptr;
  unsigned int* count = nullptr;
  const float* x = nullptr;
  uint64_t rows = 0;
  uint32_t columns = 0;
};
enum class TotalKind : uint8_t {
  kRight,
  kNoFence,        // a block counts itself before others must see its sums
  kFenceTooEarly,  // the fence stands before the sums
  kNoBarrier,      // it counts itself before all its threads have written
  kNotAcquired,    // the last block reads with no fence behind its count
  kLostUpdate,     // every block adds to the total, by a load and a store
  kReadAhead,      // every block adds what the one before it has written, if it has
};
Status launch_total(const TotalArgs& args, TotalKind kind, void* queue);

}  // namespace reprise::test
