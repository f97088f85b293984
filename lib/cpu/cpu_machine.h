// What the CPU kernels chose on this machine: the vector level, the GEMM tile, how a product is blocked, and the name of what decides bits.
// Here so that the choice is a value which the program owns; kernels reach it through their context.
#pragma once

#include "lib/cpu/cpu_blocking.h"
#include "lib/cpu/cpu_core.h"
#include "lib/cpu/cpu_size.h"
#include "lib/cpu/gemm_tile.h"
#include "lib/cpu/vector_level.h"
#include "lib/row_call.h"

namespace reprise {

// The caches of a core, in bytes; 0 where that is not known.
struct CpuCaches {
  uint64_t second = 0;  // a core's own
  uint64_t third = 0;   // that cores share
};

struct CpuMachine {
  CpuSize size = CpuSize::kLarge;
  VectorLevel level = VectorLevel::kBaseline;
  CpuCaches caches = {};  // as the port told
  GemmTile tile = {};
  CpuBlocking blocking = {};
  const GemmTile* pairs = nullptr;        // for products of bf16 (bf16_pairs.h); null where the level has none
  const GemmTile* small_pairs = nullptr;  // for depths that are too small for the groups of the other; null where the level has none
  uint32_t paired_winograd_tiles = 0;     // the core's (cpu_core.h)
  char kernel_set[96] = {};  // "BACKEND/TILE/LEVEL": each changes how sums are rounded, so each belongs to the bits
};

// The level's tile for pairs of bf16; null where it, or this build, has none. The level's name names it.
const GemmTile* pair_tile(VectorLevel level);
const GemmTile* neon_pair_tile();
const GemmTile* amx_pair_tile();

// The best level that pays on this core.
VectorLevel fastest_vector_level();

// Every panel of A passes all of B's block, which therefore takes three quarters of the second-level cache, and leaves the rest to C and A. Where
// the third level is fast enough a wider block is worth more, because A is packed and C's rows are met less often. Where A lies by depths, its
// panel, unless packed, takes a line or two for every depth, so the block takes three eighths, whatever the third level does. tuning.h measures
// what is derived here.
CpuBlocking choose_blocking(const CpuCore& core, const CpuCaches& caches, const GemmTile& tile, CpuSize size = CpuSize::kLarge);

// Once, at set-up: BLIS may take heap. kUnsupported where the processor or the link lacks the tile or the level.
// A port calls this when it opens its backend; what BLIS must be told before, and what caches there are, is the port's to know, and so are the
// levels above best_vector_level() (vector_level.h): it asks for one where the operating system has told or granted it. kSmall takes the baseline
// level and a tile within its blocks (cpu_size.h), and nothing else: that is what its stack is planned for. Its bits are the same on every
// processor, so it is refused in a build that fuses multiply-adds of its own accord.
[[nodiscard]] Status choose_cpu_machine(CpuMachine& machine, GemmTileChoice tile = GemmTileChoice::kFastest,
                                        VectorLevel level = fastest_vector_level(), const CpuCaches& caches = {}, CpuSize size = CpuSize::kLarge);

// A small core without a tile, for a plan that multiplies by none (cpu_plan_backend.h): tiles, and the choice among them, are then not linked.
[[nodiscard]] Status choose_small_core(CpuMachine& machine);

inline const CpuMachine& cpu_machine(const KernelContext& context) { return *static_cast<const CpuMachine*>(context.machine); }

}  // namespace reprise
