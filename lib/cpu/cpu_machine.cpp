// See cpu_machine.h.
#include "lib/cpu/cpu_machine.h"

#include <initializer_list>

#include "lib/cpu/gemm_scratch.h"

namespace reprise {
namespace {

// Appends as much of `text` as leaves room for the final zero.
void append(CpuMachine& machine, uint32_t& at, const char* text) {
  while (*text != 0 && at + 1 < sizeof machine.kernel_set) machine.kernel_set[at++] = *text++;
  machine.kernel_set[at] = 0;
}

constexpr uint64_t kLeastSecondCache = 262144;  // where nothing is known: that of a Cortex-A78AE
constexpr uint32_t kLeastColumns = 64;
constexpr uint32_t kTilesThatPay = 6;  // for packing A
constexpr uint32_t kRowsOfALine = 12;  // by depths, fewer rows use less than three quarters of each line that a tile reads

// Features do not tell these.
bool third_feeds_tiles() {
#if defined(__x86_64__)
  return __builtin_cpu_is("amd") != 0;
#else
  return false;
#endif
}
// A core that decodes four instructions at a time and does two wide multiply-adds (AVX-512 without VBMI2: Skylake-SP to Cooper Lake) has no room
// for the addresses of twelve rows. On AArch64 panels by depths move 2.6 times as much from L2 when they are read as they lie (TRAFFIC.md).
bool packs_a() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") && !__builtin_cpu_supports("avx512vbmi2");
#elif defined(__aarch64__)
  return true;
#else
  return false;
#endif
}

}  // namespace

CpuBlocking choose_blocking(const CpuCore& core, const GemmTile& tile, CpuSize size) {
  const CpuBlocks& blocks = blocks_of(size);
  if (size == CpuSize::kSmall) return {blocks.columns, ~0u, ~0u, blocks.columns};
  const uint64_t second = core.caches.second != 0 ? core.caches.second : kLeastSecondCache;
  const uint64_t packed = core.third_feeds_tiles ? larger(second / 4 * 3, core.caches.third / 4) : second / 4 * 3;
  const auto columns_in = [&blocks](uint64_t bytes) {
    return static_cast<uint32_t>(smaller(blocks.columns, larger(kLeastColumns, bytes / (blocks.depth * sizeof(float)))));
  };
  const bool packs_depths = core.packs_a || tile.rows() < kRowsOfALine;
  const uint32_t when_it_pays = kTilesThatPay * tile.columns();
  return {.columns = columns_in(packed),
          .pack_from = core.packs_a ? when_it_pays : ~0u,
          .pack_depths_from = packs_depths ? when_it_pays : ~0u,
          .depth_columns = columns_in(packs_depths ? second / 4 * 3 : second / 8 * 3)};
}

Status choose_cpu_machine(CpuMachine& machine, GemmTileChoice tile, VectorLevel level, const CpuCaches& caches, CpuSize size) {
  if (!may_have_vector_level(level)) return {Code::kUnsupported, "this processor lacks the vector level asked for", static_cast<uint64_t>(level)};
  REPRISE_RETURN_IF_ERROR(find_gemm_tile(tile, machine.tile));
  if (machine.tile.rows() > kMostTileRows && tile == GemmTileChoice::kFastest) {
    REPRISE_RETURN_IF_ERROR(find_gemm_tile(GemmTileChoice::kPortable, machine.tile));
  }
  if (machine.tile.rows() > kMostTileRows) return {Code::kUnsupported, "a GEMM tile for f32 must have at most 16 rows", machine.tile.rows()};
  if (size == CpuSize::kSmall && (level != VectorLevel::kBaseline || machine.tile.mr > kSmallBlocks.tile || machine.tile.nr > kSmallBlocks.tile)) {
    return {Code::kUnsupported, "a small core takes the baseline level and a tile within its blocks", machine.tile.nr};
  }
  machine.size = size;
  machine.level = level;
  machine.caches = caches;
  machine.blocking = choose_blocking({caches, third_feeds_tiles(), packs_a()}, machine.tile, size);
  machine.pairs = pair_tile(level);
  machine.small_pairs = level == VectorLevel::kAvx512Amx ? pair_tile(VectorLevel::kAvx512Bf16) : nullptr;
  if (machine.pairs == nullptr && has_products_of_bf16(level)) return {Code::kUnsupported, "this build lacks the level's tile for bf16", 0};
  uint32_t at = 0;
  const char* parts[] = {size == CpuSize::kSmall ? "cpu-small" : "cpu", "/", machine.tile.name, "/", vector_level_name(level)};
  for (const char* part : parts) append(machine, at, part);
  return ok_status();
}

}  // namespace reprise
