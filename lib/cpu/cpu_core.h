// What a micro-architecture decides of products: which tile computes them, and how they are blocked.
// Here because each has a file of its own, core_NAME.h, which says what differs from this and why; cpu_machine.cpp lists them.
#pragma once

#include "lib/cpu/gemm_tile.h"

namespace reprise {

struct CpuCore {
  bool (*is_here)();  // whether this processor is one: by its features where they tell

  // Decides bits: the tile's name stands in the kernel set's. The first of these that the processor and the program's link have.
  GemmTileChoice tiles[3] = {GemmTileChoice::kAvx512, GemmTileChoice::kBlis, GemmTileChoice::kPortable};
  uint32_t paired_winograd_tiles = 256;  // of so many tiles Winograd's f32 is faster than vectors that multiply pairs (conv_pairs.h); decides bits
  bool multiplies_pairs = true;  // its vectors multiply pairs of bf16 faster than f32; decides bits by the level (fastest_vector_level)

  // Decides seconds alone.
  uint64_t second_cache = 262144;  // bytes, where the port does not know: that of a Cortex-A78AE
  bool third_feeds_tiles = false;  // the third level delivers what a tile reads of B
  bool packs_a = false;            // a panel of A that serves several tiles is read faster packed than as it lies
  uint32_t tiles_that_pay = 6;     // so many tiles of C pay for packing a panel of A
  uint32_t rows_of_a_line = 12;    // where A lies by depths, fewer rows use less than three quarters of each line that a tile reads
};

// The core that the program runs on: the first whose is_here says so.
const CpuCore& core_here();

}  // namespace reprise
