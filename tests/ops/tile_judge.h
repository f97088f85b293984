// Tests of the register tiles of GEMM. Each function of a tile that computes C must compute every
// element as one chain of fused multiply-adds, bit by bit. Then a product's bits depend neither on
// the layout of the operands nor on the choice of tile.
#pragma once

#include <string>

#include "lib/cpu/gemm/gemm_tile.h"

namespace reprise::test {

// Tests run, run_rows and run_depths. For every element, each of these functions must compute beta
// * c plus one sum in the order of k, with fused operations only. Returns "" or a description of
// the first error.
std::string judge_fused_tile(const GemmTile& tile);
// Tests judge_fused_tile with wrong tiles, whose errors are so small that a kernel's tolerance
// might hide them. Returns "" if judge_fused_tile rejects all of them. Otherwise names a wrong tile
// that it accepts.
std::string judge_the_tile_judge(const GemmTile& tile);

}  // namespace reprise::test
