// See cpu_machine.h.
#include "lib/cpu/cpu_machine.h"

#include <initializer_list>

namespace reprise {
namespace {

// Appends as much of `text` as leaves room for the final zero.
void append(CpuMachine& machine, uint32_t& at, const char* text) {
  while (*text != 0 && at + 1 < sizeof machine.kernel_set) machine.kernel_set[at++] = *text++;
  machine.kernel_set[at] = 0;
}

}  // namespace

Status choose_cpu_machine(CpuMachine& machine, GemmTileChoice tile, VectorLevel level) {
  if (!may_have_vector_level(level)) return {Code::kUnsupported, "this processor lacks the vector level asked for", static_cast<uint64_t>(level)};
  REPRISE_RETURN_IF_ERROR(find_gemm_tile(tile, machine.tile));
  machine.level = level;
  machine.pairs = pair_tile(level);
  machine.small_pairs = level == VectorLevel::kAvx512Amx ? pair_tile(VectorLevel::kAvx512Bf16) : nullptr;
  if (machine.pairs == nullptr && has_products_of_bf16(level)) return {Code::kUnsupported, "this build lacks the level's tile for bf16", 0};
  uint32_t at = 0;
  for (const char* part : {"cpu/", static_cast<const char*>(machine.tile.name), "/", vector_level_name(level)}) append(machine, at, part);
  return ok_status();
}

}  // namespace reprise
