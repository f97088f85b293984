// A tile of 8 x 8 in vectors of four floats, for any processor. It makes the same reads and writes
// as the NEON tile, in the same order. So accesses can be counted on machines without AArch64. The
// kernels' baseline vectors are as wide as NEON's, so the other kernels of the set match AArch64's.
#pragma once

#include "lib/cpu/gemm/gemm_tile.h"

namespace reprise::bench {

GemmTile neon_shape_tile();

}  // namespace reprise::bench
