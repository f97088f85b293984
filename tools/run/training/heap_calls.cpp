// Defines malloc and the related functions so that they count calls and use glibc's own functions.
// operator new calls malloc. These definitions replace the library's only in programs that call
// heap_calls().
#include "tools/run/training/heap_calls.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define REPRISE_HEAP_IS_COUNTED 0
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define REPRISE_HEAP_IS_COUNTED 0
#endif
#ifndef REPRISE_HEAP_IS_COUNTED
#define REPRISE_HEAP_IS_COUNTED 1
#endif

#if REPRISE_HEAP_IS_COUNTED

namespace {
std::atomic<uint64_t> calls{0};
void count() { calls.fetch_add(1, std::memory_order_relaxed); }
}  // namespace

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t bytes) {
  count();
  return __libc_malloc(bytes);
}
void* calloc(size_t number, size_t bytes) {
  count();
  return __libc_calloc(number, bytes);
}
void* realloc(void* old, size_t bytes) {
  count();
  return __libc_realloc(old, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  count();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** result, size_t alignment, size_t bytes) {
  *result = memalign(alignment, bytes);
  return *result == nullptr ? ENOMEM : 0;
}
}

std::optional<uint64_t> reprise::heap_calls() { return calls.load(std::memory_order_relaxed); }

#else

std::optional<uint64_t> reprise::heap_calls() { return std::nullopt; }

#endif
