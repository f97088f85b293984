// Chooses the kernels for the processor that runs the program. The port makes this choice because
// BLIS reads its architecture from an environment variable, and because only the operating system
// reports some facts: the caches, bf16 products on AArch64, and the permission to use AMX registers
// on x86-64.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#endif

#include "lib/cpu/cpu_backend.h"
#include "lib/cpu/cpu_rules.h"
#include "ports/linux/linux_functions.h"

namespace reprise {
namespace {

// Returns the number by which BLIS 0.9.0 identifies an architecture; null to leave the choice to
// BLIS. Features decide, not the processor's family: an AMD processor with AVX-512 runs the
// Skylake-X kernel well.
const char* blis_architecture() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  if (avx512) return "0";                                                           // skx
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "6";  // zen3: the Haswell kernel
#endif
  return nullptr;
}

// Returns the number at the start of the file that describes a cache, times 1024 if a K follows it.
// Returns 0 if the file cannot be read or does not begin with a number.
uint64_t read_cache_number(uint32_t index, const char* name) {
  char path[96], text[32] = {};
  (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%u/%s", index, name);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t length = read(file, text, sizeof text - 1);
  (void)close(file);
  if (length <= 0) return 0;
  char* end = text;
  const uint64_t number = strtoull(text, &end, 10);
  return *end == 'K' ? number * 1024 : number;
}

CpuCaches find_caches() {
  constexpr uint32_t kMaxCaches = 8;
  CpuCaches caches;
  for (uint32_t index = 0; index < kMaxCaches; ++index) {
    const uint64_t level = read_cache_number(index, "level");
    if (level == 2) caches.second = read_cache_number(index, "size");
    if (level == 3) caches.third = read_cache_number(index, "size");
  }
  return caches;
}

#if defined(__x86_64__)
// True if the process may use AMX. CPUID leaf 7 has AMX-BF16 and AMX-TILE, and XCR0 shows that the
// system saves a thread's tile registers. A process must request permission once, before any of its
// threads uses them (Linux, Documentation/arch/x86/xstate.rst).
bool amx_is_granted() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kXsave = 1u << 27, kAmxBf16 = 1u << 22, kAmxTile = 1u << 24, kTileState = 3u << 17;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kXsave) == 0) return false;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kAmxBf16) == 0 || (d & kAmxTile) == 0) return false;
  unsigned low = 0, high = 0;
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & kTileState) != kTileState) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

// The best vector levels. `told` also uses what the operating system reports; `own` uses only what
// the processor reports.
struct Levels {
  VectorLevel told, own;
};
Levels vector_levels() {
  const VectorLevel own = fastest_vector_level();
#if defined(__aarch64__)
  constexpr unsigned long kBf16 = 1ul << 14;  // HWCAP2_BF16 of Linux's asm/hwcap.h
  if ((getauxval(AT_HWCAP2) & kBf16) != 0) return {VectorLevel::kNeonBf16, own};
#endif
#if defined(__x86_64__)
  if (best_vector_level() == VectorLevel::kAvx512Bf16 && amx_is_granted()) return {VectorLevel::kAvx512Amx, own};
#endif
  return {own, own};
}

CpuMachine machine;  // the only machine of the process, determined by the processor alone

}  // namespace

Status linux_open_backend(const char* name, Backend* backend) {
  *backend = {};
  const CpuCaches caches = find_caches();
  if (strcmp(name, kCpuSmallRules.name) == 0) {
    REPRISE_RETURN_IF_ERROR(
        choose_cpu_machine(machine, GemmTileChoice::kBaseline, VectorLevel::kBaseline, caches, CpuSize::kSmall));
    *backend = cpu_backend(machine);
    return ok_status();
  }
  if (strcmp(name, kCpuRules.name) != 0)
    return {Code::kUnsupported, "the board has no backend but \"cpu\" and \"cpu-small\"", 0};
  const char* architecture = blis_architecture();
  if (architecture != nullptr) (void)setenv("BLIS_ARCH_TYPE", architecture, 0);
  const Levels levels = vector_levels();
  // If the build lacks the level that the system allows, the processor's own level is used.
  if (!choose_cpu_machine(machine, GemmTileChoice::kFastest, levels.told, caches).ok()) {
    REPRISE_RETURN_IF_ERROR(choose_cpu_machine(machine, GemmTileChoice::kFastest, levels.own, caches));
  }
  *backend = cpu_backend(machine);
  return ok_status();
}

void linux_close_backend(Backend* backend) { *backend = {}; }

CpuMachine& linux_cpu_machine() { return machine; }

}  // namespace reprise
