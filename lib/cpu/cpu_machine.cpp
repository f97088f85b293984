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

// Every panel of A passes all of B's block, which therefore stays in the second-level cache and leaves it room for C and A. Of AMD's
// processors the third level delivers what a tile reads: a wider block is worth more, because A is packed and C's rows are met
// less often.
uint32_t block_columns(const CpuCaches& caches) {
  const uint64_t second = caches.second != 0 ? caches.second : kLeastSecondCache;
  uint64_t bytes = second / 4 * 3;
#if defined(__x86_64__)
  if (__builtin_cpu_is("amd")) bytes = larger(bytes, caches.third / 4);
#endif
  return static_cast<uint32_t>(smaller(kNc, larger(kLeastColumns, bytes / (kKc * sizeof(float)))));
}

// Reading A as it lies takes twelve addresses a depth in place of one. A core that decodes four instructions at a time and does two wide
// multiply-adds has no room for that (AVX-512 without VBMI2: Skylake-SP to Cooper Lake), so that packing pays from a few tiles on.
uint32_t pack_from() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && !__builtin_cpu_supports("avx512vbmi2")) return 192;
#endif
  return ~0u;
}

}  // namespace

Status choose_cpu_machine(CpuMachine& machine, GemmTileChoice tile, VectorLevel level, const CpuCaches& caches) {
  if (!may_have_vector_level(level)) return {Code::kUnsupported, "this processor lacks the vector level asked for", static_cast<uint64_t>(level)};
  REPRISE_RETURN_IF_ERROR(find_gemm_tile(tile, machine.tile));
  machine.level = level;
  machine.blocking = {block_columns(caches), pack_from()};
  machine.pairs = pair_tile(level);
  machine.small_pairs = level == VectorLevel::kAvx512Amx ? pair_tile(VectorLevel::kAvx512Bf16) : nullptr;
  if (machine.pairs == nullptr && has_products_of_bf16(level)) return {Code::kUnsupported, "this build lacks the level's tile for bf16", 0};
  uint32_t at = 0;
  for (const char* part : {"cpu/", static_cast<const char*>(machine.tile.name), "/", vector_level_name(level)}) append(machine, at, part);
  return ok_status();
}

}  // namespace reprise
