// Implements cpu_machine.h: chooses the level, the tile and the blocking, and writes the kernel
// set's name.
#include "lib/cpu/cpu_machine.h"

#include <initializer_list>

#include "lib/cpu/core_any.h"
#include "lib/cpu/core_armv8.h"
#include "lib/cpu/core_intel_bf16.h"
#include "lib/cpu/core_skylake_sp.h"
#include "lib/cpu/core_zen.h"
#include "lib/cpu/gemm/gemm_scratch.h"

namespace reprise {
namespace {

// Appends `text` to the kernel set's name at index `at`, and advances `at`. Omits the characters
// that do not fit before the final zero.
void append(CpuMachine& machine, uint32_t& at, const char* text) {
  while (*text != 0 && at + 1 < sizeof machine.kernel_set) machine.kernel_set[at++] = *text++;
  machine.kernel_set[at] = 0;
}

void name_kernel_set(CpuMachine& machine, const char* tile) {
  uint32_t at = 0;
  const char* parts[] = {machine.size == CpuSize::kSmall ? "cpu-small" : "cpu", "/", tile, "/",
                         vector_level_name(machine.level)};
  for (const char* part : parts) append(machine, at, part);
}

constexpr uint32_t kMinColumns = 64;

// Returns kUnsupported if a small core does not accept the level or the tile, or if the compiler
// fuses multiply-adds by default. The test computes (1 + 2^-12)^2 - (1 + 2^-11), which is 2^-24. A
// float product loses the 2^-24 by rounding, so the result is 0; a fused multiply-add keeps it.
Status check_small_core(VectorLevel level, const GemmTile& tile) {
  volatile float factor = 1.000244140625f, less = -1.00048828125f;
  if (factor * factor + less != 0)
    return {Code::kUnsupported, "a small core's kernels must be compiled by g++ with -ffp-contract=off", 0};
  if (level == VectorLevel::kBaseline && tile.mr <= kSmallBlocks.tile && tile.nr <= kSmallBlocks.tile)
    return ok_status();
  return {Code::kUnsupported, "a small core takes the baseline level and a tile within its blocks", tile.nr};
}

// The first core whose is_here() returns true is used, so the last one must accept every processor.
constexpr const CpuCore* kCores[] = {&kIntelBf16Core, &kSkylakeSpCore, &kZenCore, &kArmv8Core, &kAnyCore};

}  // namespace

const CpuCore& core_here() {
#if defined(__x86_64__)
  __builtin_cpu_init();
#endif
  const CpuCore* const* core = kCores;
  while (!(*core)->is_here()) ++core;
  return **core;
}

VectorLevel fastest_vector_level() {
  const VectorLevel best = best_vector_level();
  return best == VectorLevel::kAvx512Bf16 && !core_here().multiplies_pairs ? VectorLevel::kAvx512 : best;
}

CpuBlocking choose_blocking(const CpuCore& core, const CpuCaches& caches, const GemmTile& tile, CpuSize size) {
  const CpuBlocks& blocks = blocks_of(size);
  if (size == CpuSize::kSmall) return {blocks.columns, ~0u, ~0u, blocks.columns};
  const uint64_t second = caches.second != 0 ? caches.second : core.second_cache;
  const uint64_t packed = core.third_feeds_tiles ? larger(second / 4 * 3, caches.third / 4) : second / 4 * 3;
  const auto columns_in = [&blocks](uint64_t bytes) {
    return static_cast<uint32_t>(
        smaller(blocks.columns, larger(kMinColumns, bytes / (blocks.depth * sizeof(float)))));
  };
  const bool packs_depths = core.packs_a || tile.rows() < core.rows_of_a_line;
  const uint32_t when_it_pays = core.tiles_that_pay * tile.columns();
  return {.columns = columns_in(packed),
          .pack_from = core.packs_a ? when_it_pays : ~0u,
          .pack_depths_from = packs_depths ? when_it_pays : ~0u,
          .depth_columns = columns_in(packs_depths ? second / 4 * 3 : second / 8 * 3)};
}

Status choose_small_core(CpuMachine& machine) {
  REPRISE_RETURN_IF_ERROR(check_small_core(VectorLevel::kBaseline, {}));
  machine = {.size = CpuSize::kSmall, .blocking = {kSmallBlocks.columns, ~0u, ~0u, kSmallBlocks.columns}};
  name_kernel_set(machine, REPRISE_BASELINE_TILE);
  return ok_status();
}

Status choose_cpu_machine(CpuMachine& machine, GemmTileChoice tile, VectorLevel level, const CpuCaches& caches,
                          CpuSize size) {
  if (!may_have_vector_level(level))
    return {Code::kUnsupported, "this processor lacks the vector level asked for", static_cast<uint64_t>(level)};
  REPRISE_RETURN_IF_ERROR(find_gemm_tile(tile, machine.tile));
  if (machine.tile.rows() > kMaxTileRows && tile == GemmTileChoice::kFastest) {
    REPRISE_RETURN_IF_ERROR(find_gemm_tile(GemmTileChoice::kWidest, machine.tile));
  }
  if (machine.tile.rows() > kMaxTileRows)
    return {Code::kUnsupported, "a GEMM tile for f32 must have at most 16 rows", machine.tile.rows()};
  if (size == CpuSize::kSmall) REPRISE_RETURN_IF_ERROR(check_small_core(level, machine.tile));
  machine.size = size;
  machine.level = level;
  machine.caches = caches;
  machine.blocking = choose_blocking(core_here(), caches, machine.tile, size);
  machine.paired_winograd_tiles = core_here().paired_winograd_tiles;
  machine.pairs = pair_tile(level);
  machine.small_pairs = level == VectorLevel::kAvx512Amx ? pair_tile(VectorLevel::kAvx512Bf16) : nullptr;
  if (machine.pairs == nullptr && has_products_of_bf16(level))
    return {Code::kUnsupported, "this build lacks the level's tile for bf16", 0};
  name_kernel_set(machine, machine.tile.name);
  return ok_status();
}

}  // namespace reprise
