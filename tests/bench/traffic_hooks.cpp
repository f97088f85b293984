// See traffic_hooks.h. The compiler determines the names of the __asan functions. The benchmark's
// build makes the kernels call the traffic functions instead of memcpy and similar functions.
#include "tests/bench/traffic_hooks.h"

#include <cstring>

namespace reprise::bench {
MemoryAccess memory_access = nullptr;
}

namespace {
inline void announce(uint64_t address, uint64_t bytes, bool writes) {
  if (reprise::bench::memory_access != nullptr) reprise::bench::memory_access(address, bytes, writes);
}
}  // namespace

extern "C" {
#define REPRISE_ACCESS(bytes)                                                        \
  void __asan_load##bytes##_noabort(uint64_t address) { announce(address, bytes, false); } \
  void __asan_store##bytes##_noabort(uint64_t address) { announce(address, bytes, true); }
REPRISE_ACCESS(1)
REPRISE_ACCESS(2)
REPRISE_ACCESS(4)
REPRISE_ACCESS(8)
REPRISE_ACCESS(16)
#undef REPRISE_ACCESS
void __asan_loadN_noabort(uint64_t address, uint64_t bytes) { announce(address, bytes, false); }
void __asan_storeN_noabort(uint64_t address, uint64_t bytes) { announce(address, bytes, true); }
void __asan_handle_no_return() {}

void* traffic_memcpy(void* to, const void* from, size_t bytes) {
  announce(reinterpret_cast<uint64_t>(from), bytes, false);
  announce(reinterpret_cast<uint64_t>(to), bytes, true);
  return std::memcpy(to, from, bytes);
}
void* traffic_memmove(void* to, const void* from, size_t bytes) {
  announce(reinterpret_cast<uint64_t>(from), bytes, false);
  announce(reinterpret_cast<uint64_t>(to), bytes, true);
  return std::memmove(to, from, bytes);
}
void* traffic_memset(void* to, int value, size_t bytes) {
  announce(reinterpret_cast<uint64_t>(to), bytes, true);
  return std::memset(to, value, bytes);
}
}
