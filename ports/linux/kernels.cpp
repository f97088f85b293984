// Chooses the kernels for the processor that the program runs on.
// Here because BLIS takes its architecture from the environment, which is the operating system's, and because the system alone tells a program
// on AArch64 whether the processor multiplies bf16.
#include <stdlib.h>
#include <string.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include "lib/cpu/cpu_backend.h"
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

// The best level first; every machine has the last.
struct Levels {
  VectorLevel told, own;
};
Levels vector_levels() {
  const VectorLevel own = best_vector_level();
#if defined(__aarch64__)
  constexpr unsigned long kBf16 = 1ul << 14;  // HWCAP2_BF16 of Linux's asm/hwcap.h
  if ((getauxval(AT_HWCAP2) & kBf16) != 0) return {VectorLevel::kNeonBf16, own};
#endif
  return {own, own};
}

CpuMachine machine;  // the process has one: it follows from the processor

}  // namespace

Status linux_open_backend(const char* name, Backend* backend) {
  *backend = {};
  if (strcmp(name, "cpu") != 0) return {Code::kUnsupported, "the board has no backend but \"cpu\"", 0};
  const char* architecture = blis_architecture();
  if (architecture != nullptr) (void)setenv("BLIS_ARCH_TYPE", architecture, 0);
  const Levels levels = vector_levels();
  if (!choose_cpu_machine(machine, GemmTileChoice::kFastest, levels.told).ok()) {  // a build may lack it
    REPRISE_RETURN_IF_ERROR(choose_cpu_machine(machine, GemmTileChoice::kFastest, levels.own));
  }
  *backend = cpu_backend(machine);
  return ok_status();
}

void linux_close_backend(Backend* backend) { *backend = {}; }

}  // namespace reprise
