// The arena of a Linux process: one anonymous mapping.
// Here because lib takes memory as it is given and cannot ask for it.
#include <errno.h>
#include <fcntl.h>
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

// Of a line "MemTotal:       16303040 kB".
uint64_t memory_field(const char* text, const char* name) {
  const char* line = strstr(text, name);
  return line == nullptr ? kUnknown : strtoull(line + strlen(name), nullptr, 10) * 1024;
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
  *arena = {};
  if (bytes == 0) return ok_status();
  if (bytes > linux_memory().available_bytes) {
    return {Code::kOutOfMemory,
            "the machine has less memory available than the arena needs: plan with a smaller budget", bytes};
  }
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED)
    return {Code::kOutOfMemory, "mmap refused the arena: plan with a smaller budget, or raise the limit", bytes};
  if (bytes >= kHugePage) (void)madvise(base, bytes, MADV_HUGEPAGE);  // fewer misses of the TLB; without it only slower
  *arena = {{static_cast<unsigned char*>(base)}, bytes};
  return ok_status();
}

void linux_release_arena(Arena* arena) {
  if (arena->base.for_kernels != nullptr) (void)munmap(arena->base.for_kernels, arena->bytes);
  *arena = {};
}

}  // namespace reprise
