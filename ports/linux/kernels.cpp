// Chooses the kernels for the processor that the program runs on.
// Here because BLIS takes its architecture from the environment, and the caches are told by /sys: both are the operating system's.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

CpuMachine machine;  // the process has one: it follows from the processor

}  // namespace

Status linux_open_backend(const char* name, Backend* backend) {
  *backend = {};
  if (strcmp(name, "cpu") != 0) return {Code::kUnsupported, "the board has no backend but \"cpu\"", 0};
  const char* architecture = blis_architecture();
  if (architecture != nullptr) (void)setenv("BLIS_ARCH_TYPE", architecture, 0);
  REPRISE_RETURN_IF_ERROR(choose_cpu_machine(machine, GemmTileChoice::kFastest, best_vector_level(), find_caches()));
  *backend = cpu_backend(machine);
  return ok_status();
}

void linux_close_backend(Backend* backend) { *backend = {}; }

}  // namespace reprise
