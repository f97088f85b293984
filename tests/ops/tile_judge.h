// The judge of register tiles: all ways of one tile into C, bit by bit, against a chain of fused multiply-adds an element.
// Here because a product's bits may not depend on how its operands lie, nor on which of this library's tiles it ran.
#pragma once

#include <string>

#include "lib/cpu/gemm_tile.h"

namespace reprise::test {

// Empty if every element is beta * c plus one sum in the order of k, fused throughout, by run, run_rows and run_depths alike; else where not.
std::string judge_fused_tile(const GemmTile& tile);
// Empty if the judge sees tiles that are wrong in what a kernel's tolerance may hide; else which it does not see.
std::string judge_the_tile_judge(const GemmTile& tile);

}  // namespace reprise::test
