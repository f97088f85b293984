// Switches between stacks: the only part of a fibre that depends on the processor. For x86-64 and
// AArch64 there is a switch that saves only the callee-saved registers. Other processors use
// swapcontext, which makes a system call for each switch.
#pragma once

#include <cstddef>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif

namespace reprise::fibre {

// The state from which a stack resumes. The rounding mode and other state of the processor are not
// saved.
struct Context {
#if defined(__x86_64__) || defined(__aarch64__)
  void* stack_pointer = nullptr;
#else
  ucontext_t saved{};
#endif
};

// Prepares `context`: the first switch to it calls entry() on the stack. entry() must not return.
void prepare_context(Context& context, unsigned char* stack, size_t stack_bytes, void (*entry)());

// Switches to `to`, and returns when another fibre switches to `from`.
void switch_context(Context& from, Context& to);

}  // namespace reprise::fibre
