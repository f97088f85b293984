// The CPU backend, and the name of the set of kernels that this machine runs.
#include "lib/cpu/cpu_backend.h"

#include "lib/cpu/cpu_host_access.h"
#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_rules.h"
#include "lib/cpu/gemm_tile.h"
#include "lib/cpu/vector_level.h"

namespace reprise {
namespace {

constexpr uint32_t kNameBytes = 96;

// Appends as much of `text` as leaves room for the final zero.
uint32_t append(char* out, uint32_t at, const char* text) {
  while (*text != 0 && at + 1 < kNameBytes) out[at++] = *text++;
  return at;
}

// "cpu/TILE/LEVEL": both change how sums are rounded, so both belong to the bits.
const char* cpu_kernel_set() {
  static char name[kNameBytes];
  uint32_t at = append(name, 0, "cpu/");
  at = append(name, at, gemm_tile().name);
  at = append(name, at, "/");
  at = append(name, at, vector_level_name(vector_level()));
  name[at] = 0;
  return name;
}

constexpr Backend cpu_table() {
  Backend table = {.rules = &kCpuRules, .kernel_set = cpu_kernel_set, .host = kCpuHostAccess};
  add_cpu_kernels(table);
  return table;
}

}  // namespace

constexpr Backend kCpuBackend = cpu_table();

}  // namespace reprise
