// A tile of 8 x 8 in vectors of four floats, which reads and writes what the NEON tile does, in its order, on any processor.
// Here because accesses are counted where there is no AArch64; with the kernels' baseline vectors, which are as wide as NEON's, the rest of the
// set is what AArch64 runs.
#pragma once

#include "lib/cpu/gemm_tile.h"

namespace reprise::bench {

GemmTile neon_shape_tile();

}  // namespace reprise::bench
