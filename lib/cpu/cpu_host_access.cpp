// The operations of lib/host_access.h for an arena in the host's memory.
#include <cstring>

#include "lib/assert.h"
#include "lib/cpu/cpu_host_access.h"

namespace reprise {

Status cpu_copy_in(const KernelContext&, ArenaAddress to, const void* from, uint64_t bytes) {
  if (bytes != 0) std::memcpy(to.for_kernels, from, bytes);
  return ok_status();
}

Status cpu_copy_out(const KernelContext&, void* to, ArenaAddress from, uint64_t bytes) {
  if (bytes != 0) std::memcpy(to, from.for_kernels, bytes);
  return ok_status();
}

Status cpu_fill(const KernelContext&, ArenaAddress to, uint32_t word, uint64_t bytes) {
  REPRISE_ASSERT(bytes % sizeof word == 0, "a filled range has whole words");
  for (uint64_t at = 0; at < bytes; at += sizeof word) std::memcpy(to.for_kernels + at, &word, sizeof word);
  return ok_status();
}

Status cpu_copy(const KernelContext&, ArenaAddress to, ArenaAddress from, uint64_t bytes) {
  [[maybe_unused]] const uintptr_t there = reinterpret_cast<uintptr_t>(to.for_kernels),
                                   here = reinterpret_cast<uintptr_t>(from.for_kernels);
  REPRISE_ASSERT(bytes <= (there < here ? here - there : there - here), "the ranges of a copy do not overlap");
  if (bytes != 0) std::memcpy(to.for_kernels, from.for_kernels, bytes);
  return ok_status();
}

Status cpu_start_out(const KernelContext& context, void* to, ArenaAddress from, uint64_t bytes, uint32_t) {
  return cpu_copy_out(context, to, from, bytes);
}

Status cpu_start_in(const KernelContext& context, ArenaAddress to, const void* from, uint64_t bytes, uint32_t) {
  return cpu_copy_in(context, to, from, bytes);
}

Status cpu_await(const KernelContext&, uint32_t) { return ok_status(); }

Status cpu_synchronise(const KernelContext&) { return ok_status(); }

}  // namespace reprise
