// Chooses the kernels for the processor that the program runs on.
// Here because BLIS takes its architecture from the environment, and because the operating system alone tells a program what caches there are,
// tells it on AArch64 whether the processor multiplies bf16, and grants one on x86-64 the registers of AMX.
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

// BLIS 0.9.0 takes a number. Features decide, never the family: an AMD processor with AVX-512 runs the Skylake-X kernel
// well.
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

// A number that a file of a cache begins with, times 1024 where a K follows; 0 where there is no such file.
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
  constexpr uint32_t kMostCaches = 8;
  CpuCaches caches;
  for (uint32_t index = 0; index < kMostCaches; ++index) {
    const uint64_t level = read_cache_number(index, "level");
    if (level == 2) caches.second = read_cache_number(index, "size");
    if (level == 3) caches.third = read_cache_number(index, "size");
  }
  return caches;
}

#if defined(__x86_64__)
// CPUID leaf 7 has AMX-BF16 and AMX-TILE, XCR0 the system's word that it keeps a thread's tile registers; a process must ask for them once
// (Linux, Documentation/arch/x86/xstate.rst), before a thread of it uses them.
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

// The best level first; every machine has the last.
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

CpuMachine machine;  // the process has one: it follows from the processor

}  // namespace

Status linux_open_backend(const char* name, Backend* backend) {
  *backend = {};
  const CpuCaches caches = find_caches();
  if (strcmp(name, kCpuSmallRules.name) == 0) {
    REPRISE_RETURN_IF_ERROR(choose_cpu_machine(machine, GemmTileChoice::kBaseline, VectorLevel::kBaseline, caches, CpuSize::kSmall));
    *backend = cpu_backend(machine);
    return ok_status();
  }
  if (strcmp(name, kCpuRules.name) != 0) return {Code::kUnsupported, "the board has no backend but \"cpu\" and \"cpu-small\"", 0};
  const char* architecture = blis_architecture();
  if (architecture != nullptr) (void)setenv("BLIS_ARCH_TYPE", architecture, 0);
  const Levels levels = vector_levels();
  if (!choose_cpu_machine(machine, GemmTileChoice::kFastest, levels.told, caches).ok()) {  // a build may lack it
    REPRISE_RETURN_IF_ERROR(choose_cpu_machine(machine, GemmTileChoice::kFastest, levels.own, caches));
  }
  *backend = cpu_backend(machine);
  return ok_status();
}

void linux_close_backend(Backend* backend) { *backend = {}; }

CpuMachine& linux_cpu_machine() { return machine; }

}  // namespace reprise
