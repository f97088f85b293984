// The arena of a Linux process: one anonymous mapping, of which only the first `bytes`
// bytes have memory.
//
//   base              bytes                     reserved_bytes
//   | read and write  | no access, no memory    |
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/tensor.h"
#include "ports/linux/linux_functions.h"

namespace reprise {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;

constexpr uint64_t kUnknown = ~uint64_t{0};

// Returns the bytes of a line such as "MemTotal: 16303040 kB"; kUnknown if there is none.
uint64_t memory_field(const char* text, const char* name) {
  const char* line = strstr(text, name);
  return line == nullptr ? kUnknown : strtoull(line + strlen(name), nullptr, 10) * 1024;
}

constexpr uint64_t whole_pages(uint64_t bytes, uint64_t page) { return (bytes + page - 1) / page * page; }

char refusal[160];  // static: a Status cannot store a formatted text

Status too_little(uint64_t more, uint64_t available, uint64_t bytes) {
  (void)snprintf(refusal, sizeof refusal,
                 "the arena takes %llu MiB, and the machine has %llu available: end what else takes memory, or plan "
                 "with a smaller budget",
                 static_cast<unsigned long long>((more + 0xfffff) >> 20),
                 static_cast<unsigned long long>(available >> 20));
  return {Code::kOutOfMemory, refusal, bytes};
}

Status refused(uint64_t bytes) {
  return {Code::kOutOfMemory, "mmap refused the arena: plan with a smaller budget, or raise the limit", bytes};
}

}  // namespace

LinuxMemory linux_memory() {
  const int file = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
  if (file < 0) return {kUnknown, kUnknown};
  char text[2048];
  const ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  if (length <= 0) return {kUnknown, kUnknown};
  text[length] = 0;
  return {memory_field(text, "MemTotal:"), memory_field(text, "MemAvailable:")};
}

Status linux_acquire_arena(uint64_t bytes, Arena* arena) {
  Status status = linux_reserve_arena(bytes, arena);
  if (status.ok()) status = linux_resize_arena(bytes, arena);
  if (!status.ok()) linux_release_arena(arena);
  arena->reserved_bytes = 0;
  return status;
}

Status linux_reserve_arena(uint64_t bytes, Arena* arena) {
  *arena = {};
  if (bytes == 0) return ok_status();
  void* base = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return refused(bytes);
  *arena = {{static_cast<unsigned char*>(base)}, 0, bytes};
  return ok_status();
}

Status linux_resize_arena(uint64_t bytes, Arena* arena) {
  if (bytes > arena->reserved_bytes)
    return {Code::kUnsupported, "the arena has not so many addresses: reserve them, or take one of that size", bytes};
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t had = whole_pages(arena->bytes, page), wanted = whole_pages(bytes, page);
  unsigned char* const base = arena->base.for_kernels;
  if (wanted > had) {
    const uint64_t more = wanted - had;
    const uint64_t available = linux_memory().available_bytes;
    if (more > available) return too_little(more, available, bytes);
    if (mprotect(base + had, more, PROT_READ | PROT_WRITE) != 0) return refused(bytes);
    // Huge pages reduce TLB misses; an error only costs speed.
    if (more >= kHugePage) (void)madvise(base + had, more, MADV_HUGEPAGE);
  } else if (wanted < had) {
    const uint64_t fewer = had - wanted;
    void* const empty = mmap(base + wanted, fewer, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (empty == MAP_FAILED) return {Code::kUnsupported, "mmap gives back no part of the arena", bytes};
  }
  arena->bytes = bytes;
  return ok_status();
}

Status linux_acquire_host(uint64_t bytes, HostMemory* memory) {
  *memory = {};
  Arena taken;
  REPRISE_RETURN_IF_ERROR(linux_acquire_arena(bytes, &taken));
  *memory = {taken.base.for_kernels, taken.bytes};
  return ok_status();
}

void linux_release_host(HostMemory* memory) {
  Arena taken = {{memory->base}, memory->bytes};
  linux_release_arena(&taken);
  *memory = {};
}

void linux_release_arena(Arena* arena) {
  const uint64_t addresses = arena->reserved_bytes > arena->bytes ? arena->reserved_bytes : arena->bytes;
  if (arena->base.for_kernels != nullptr) (void)munmap(arena->base.for_kernels, addresses);
  *arena = {};
}

}  // namespace reprise
