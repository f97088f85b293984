// What instrumented kernels read and write, as it happens.
// The compiler can announce every access to memory: clang's -fsanitize=kernel-address calls a function for each, which is ours here. So the
// kernels need no hooks of their own, and what is counted is their code with the vectors of its level. What the compiler keeps in registers
// is not announced, nor what it puts on the stack for want of them, inline assembly, or what is fetched ahead.
#pragma once

#include <cstdint>

namespace reprise::bench {

using MemoryAccess = void (*)(uint64_t address, uint64_t bytes, bool writes);

// Null: nobody listens. For one thread.
extern MemoryAccess memory_access;

}  // namespace reprise::bench
