// The choices of the CPU kernels on this machine: vector level, GEMM tile and blocking of products.
// `kernel_set` names all choices that decide bits. The program owns the choices as a value; kernels
// read them through their context.
#pragma once

#include "lib/cpu/cpu_blocking.h"
#include "lib/cpu/cpu_core.h"
#include "lib/cpu/cpu_size.h"
#include "lib/cpu/gemm/gemm_tile.h"
#include "lib/cpu/vector_level.h"
#include "lib/row_call.h"

namespace reprise {

// Sizes of the caches in bytes; 0 if unknown.
struct CpuCaches {
  uint64_t second = 0;  // L2, private to a core
  uint64_t third = 0;   // L3, shared by cores
};

struct CpuMachine {
  CpuSize size = CpuSize::kLarge;
  VectorLevel level = VectorLevel::kBaseline;
  CpuCaches caches = {};  // sizes of the caches, as reported by the port
  GemmTile tile = {};
  CpuBlocking blocking = {};
  const GemmTile* pairs = nullptr;  // tile for products of bf16 (bf16_pairs.h); null if the level has none
  // Tile for products whose depth is too small for the groups of `pairs`; null if the level has
  // none.
  const GemmTile* small_pairs = nullptr;
  uint32_t paired_winograd_tiles = 0;  // a copy of CpuCore::paired_winograd_tiles
  char kernel_set[96] = {};            // "BACKEND/TILE/LEVEL": each part changes how sums are rounded
};

// Returns the level's tile for pairs of bf16; null if the level or this build has none. A kernel
// set has no name for this tile, because each level has only one.
const GemmTile* pair_tile(VectorLevel level);
const GemmTile* neon_pair_tile();
const GemmTile* amx_pair_tile();

// Returns the best vector level of this processor, or a lower level that is faster on this core.
VectorLevel fastest_vector_level();

// Returns the blocking derived from the core and its caches; tuning.h can refine it by measuring.
// The block of B is read once for each panel of A. So the block fills three quarters of L2, and the
// last quarter is left to A and C. If L3 is fast enough, the block may fill a quarter of L3
// instead. A is then packed, and C's rows are read and written, less often. A depth-major A that is
// read in place occupies one or two cache lines for each depth of a panel. For such an A the block
// fills only three eighths of L2, whatever L3 is.
CpuBlocking choose_blocking(const CpuCore& core, const CpuCaches& caches, const GemmTile& tile,
                            CpuSize size = CpuSize::kLarge);

// Chooses tile, level and blocking of `machine`. Call this function once, at set-up, because BLIS
// may allocate memory. A port calls it after it has configured BLIS, and passes the sizes of the
// caches. Only the port may request a level above best_vector_level() (vector_level.h), after the
// operating system has reported or granted that level.
//
// Returns kUnsupported if the processor or the program lacks the tile, the level or the level's
// tile for bf16. Returns it also if the tile has more than kMaxTileRows rows. A small core accepts
// only the baseline level and a tile within its blocks (cpu_size.h), for which its stack is
// planned. A small core's bits must be equal on every processor. So kUnsupported is also returned
// for a small core if the compiler fuses multiply-adds by default.
[[nodiscard]] Status choose_cpu_machine(CpuMachine& machine, GemmTileChoice tile = GemmTileChoice::kFastest,
                                        VectorLevel level = fastest_vector_level(), const CpuCaches& caches = {},
                                        CpuSize size = CpuSize::kLarge);

// Chooses a small core without a tile, for a plan none of whose kernels uses a tile
// (cpu_plan_backend.h). The tiles and their selection are then not linked. Returns kUnsupported if
// the compiler fuses multiply-adds by default.
[[nodiscard]] Status choose_small_core(CpuMachine& machine);

inline const CpuMachine& cpu_machine(const KernelContext& context) {
  return *static_cast<const CpuMachine*>(context.machine);
}

}  // namespace reprise
