// Switches between stacks: what a fibre needs of the machine.
// Here so that the scheduler knows no registers. x86-64 and AArch64 have a switch of their own, which saves what a called
// function must keep and no more; elsewhere it is swapcontext, which makes a system call each time.
#pragma once

#include <cstddef>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif

namespace reprise::fibre {

// Where a stack goes on. Rounding mode and other states of the processor stay as they are.
struct Context {
#if defined(__x86_64__) || defined(__aarch64__)
  void* stack_pointer = nullptr;
#else
  ucontext_t saved{};
#endif
};

// The first switch to `context` calls entry() on the stack; entry never returns.
void prepare_context(Context& context, unsigned char* stack, size_t stack_bytes, void (*entry)());

// Comes back when somebody switches to `from`.
void switch_context(Context& from, Context& to);

}  // namespace reprise::fibre
