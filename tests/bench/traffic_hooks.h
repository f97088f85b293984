// Reports each read and write of instrumented kernels when it happens. clang's
// -fsanitize=kernel-address calls a function for every access to memory, and traffic_hooks.cpp
// defines these functions. The kernels need no changes, and their own code with the vectors of its
// level is counted. Values in registers, spills to the stack, inline assembly and prefetches are
// not reported.
#pragma once

#include <cstdint>

namespace reprise::bench {

using MemoryAccess = void (*)(uint64_t address, uint64_t bytes, bool writes);

// Called for every access; null: no function is called. Not thread-safe.
extern MemoryAccess memory_access;

}  // namespace reprise::bench
