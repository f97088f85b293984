// Launches small kernels that sum rows: correct kernels, and kernels with one planted fault in
// their accesses to global memory. They test the judges of global memory (cuda_fibre_access.h,
// ptx_machine.h). The PTX machine runs the faults as nvcc compiles them.
#pragma once

#include <cstdint>

#include "lib/status.h"

namespace reprise::test {

// Arguments of a kernel that sums the rows of x [rows][columns] in tiles of 128 rows. sums[tile][c]
// is the sum of column c.
struct TileSumArgs {
  float* sums = nullptr;
  const float* x = nullptr;
  uint64_t rows = 0;
  uint32_t columns = 0;
};
enum class TileSumKind : uint8_t {
  kRight,
  kOneRowTooMany,  // sums also the row after the last row
  kMaskedRow,      // reads rows after the last row, without adding them
  kMaskedCopy,     // copies rows after the last row asynchronously, with all bytes declared valid
  kMisaligned,     // loads 16 bytes from the start of each row, even if it is not aligned
  kInputWritten,   // stores the sum in x
  kNarrowIndex,    // computes the index of an element in 32 bits
};
Status launch_tile_sums(const TileSumArgs& args, TileSumKind kind, void* queue);

// Arguments of a kernel that computes total[c], the sum of all rows of x. Each block writes
// partials[tile][c] and then increments *count. The block that increments it last adds the
// partials. *count must be 0 before the launch.
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
  kNoFence,        // a block increments the count without a fence after its sums
  kFenceTooEarly,  // the fence is before the stores of the sums
  kNoBarrier,      // a block increments the count before all its threads have written
  kNotAcquired,    // the last block has no fence between its increment of the count and its reads
  kLostUpdate,     // every block adds to the total by a load and a store
  kReadAhead,      // every block adds the sums of the previous block, without waiting for them
};
Status launch_total(const TotalArgs& args, TotalKind kind, void* queue);

}  // namespace reprise::test
