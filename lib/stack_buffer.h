// Arrays on a worker's stack whose size depends on the call. The stack rules state their size
// (gemm_scratch.h, attention_rules.h). An array of the maximum size would need the whole stack of a
// small core, even for a layer of ten outputs.
#pragma once

#include <cstdint>

// Declares `Type* const name`, an array of `count` elements aligned to 64 bytes. The array exists
// until the function returns: do not declare one inside a loop.
#define REPRISE_STACK_BUFFER(Type, name, count) \
  Type* const name =                          \
      static_cast<Type*>(__builtin_alloca_with_align(sizeof(Type) * (count), ::reprise::kStackBufferAlignment * 8))

namespace reprise {

// The alignment of every array, in bytes.
constexpr uint64_t kStackBufferAlignment = 64;
// The maximum size of a pointer on any processor, in bytes. Rules use this number instead of
// sizeof, so that a plan's stack bytes do not depend on the processor.
constexpr uint64_t kMaxPointerBytes = 8;
// Returns the maximum stack bytes of one array of `bytes` bytes.
constexpr uint64_t stack_buffer_bytes(uint64_t bytes) { return bytes + 2 * kStackBufferAlignment; }

}  // namespace reprise
