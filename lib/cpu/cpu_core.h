// The choices of matrix products that depend on the micro-architecture: the tile and the blocking.
// Each micro-architecture has a file core_NAME.h, which states the values that differ from these
// defaults and why. cpu_machine.cpp lists the micro-architectures.
#pragma once

#include "lib/cpu/gemm/gemm_tile.h"

namespace reprise {

struct CpuCore {
  bool (*is_here)();  // returns true if this processor is such a core

  // Tiles in order of preference. The first tile is used that the processor supports and the
  // program is linked with. Decides bits, so the kernel set's name contains the tile's.
  GemmTileChoice tiles[3] = {GemmTileChoice::kAvx512, GemmTileChoice::kBlis, GemmTileChoice::kWidest};
  // Minimum number of Winograd tiles for which Winograd in f32 is faster than a product of bf16
  // pairs by vectors (conv_pairs.h). Decides bits.
  uint32_t paired_winograd_tiles = 256;
  // True if vector instructions multiply pairs of bf16 faster than f32. Decides the vector level
  // (fastest_vector_level), and so bits.
  bool multiplies_pairs = true;

  // The values below change speed only.
  uint64_t second_cache = 262144;  // bytes of L2 if the port reports none; this default is a Cortex-A78AE's
  bool third_feeds_tiles = false;  // true if the third-level cache is fast enough for the tile's reads of B
  bool packs_a = false;            // true if packing a panel of A that several tiles use makes its reads faster
  uint32_t tiles_that_pay = 6;     // minimum tiles of C for which packing a panel of A pays
  // Minimum rows of a tile for which a depth-major A is read in place: fewer rows use less than
  // three quarters of each cache line.
  uint32_t rows_of_a_line = 12;
};

// Returns the core that the program runs on: the first in the list whose is_here() returns true.
const CpuCore& core_here();

}  // namespace reprise
