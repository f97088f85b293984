// Arrays on the worker's stack whose size follows from the call, where the rules state it (gemm_scratch.h, attention_rules.h).
// Here because an array of the largest size would take a small core's whole stack for a layer of ten outputs.
#pragma once

#include <cstdint>

// `Type* const name`, `count` of them, aligned to a line of the cache, until the function returns: never in a loop of one.
#define REPRISE_STACK_ROOM(Type, name, count) \
  Type* const name = static_cast<Type*>(__builtin_alloca_with_align(sizeof(Type) * (count), ::reprise::kStackRoomAlignment * 8))

namespace reprise {

constexpr uint64_t kStackRoomAlignment = 64;
// A pointer takes so many at most. Rules count with them and not with the compiler's own: a plan's stack is the same on every processor.
constexpr uint64_t kMostPointerBytes = 8;
// What one room takes at most.
constexpr uint64_t stack_room_bytes(uint64_t bytes) { return bytes + 2 * kStackRoomAlignment; }

}  // namespace reprise
