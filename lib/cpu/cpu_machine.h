// What the CPU kernels chose on this machine: the vector level, the GEMM tile, and the name of both.
// Here so that the choice is a value which the program owns; kernels reach it through their context.
#pragma once

#include "lib/cpu/gemm_tile.h"
#include "lib/cpu/vector_level.h"
#include "lib/row_call.h"

namespace reprise {

struct CpuMachine {
  VectorLevel level = VectorLevel::kBaseline;
  GemmTile tile = {};
  const GemmTile* pairs = nullptr;        // for products of bf16 (bf16_pairs.h); null where the level has none
  const GemmTile* small_pairs = nullptr;  // for depths that are too small for the groups of the other; null where the level has none
  char kernel_set[96] = {};  // "cpu/TILE/LEVEL": both change how sums are rounded, so both belong to the bits
};

// The level's tile for pairs of bf16; null where it, or this build, has none. The level's name names it.
const GemmTile* pair_tile(VectorLevel level);
const GemmTile* neon_pair_tile();
const GemmTile* amx_pair_tile();

// Once, at set-up: BLIS may take heap. kUnsupported where the processor or the link lacks the tile or the level.
// A port calls this when it opens its backend; what BLIS must be told before is the port's to know, and so are the levels above
// best_vector_level() (vector_level.h): it asks for one where the operating system has told or granted it.
[[nodiscard]] Status choose_cpu_machine(CpuMachine& machine, GemmTileChoice tile = GemmTileChoice::kFastest,
                                        VectorLevel level = best_vector_level());

inline const CpuMachine& cpu_machine(const KernelContext& context) { return *static_cast<const CpuMachine*>(context.machine); }

}  // namespace reprise
