// Switches between stacks: pushes the callee-saved registers, exchanges the stack pointers, and
// pops the registers of the other stack.
#include "tests/ports/fibres/cuda_fibre_switch.h"

#include <cstdint>

#if defined(__x86_64__)

asm(R"(
  .text
  .globl reprise_fibre_switch
  .type reprise_fibre_switch, @function
reprise_fibre_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size reprise_fibre_switch, .-reprise_fibre_switch
)");

#elif defined(__aarch64__)

asm(R"(
  .text
  .globl reprise_fibre_switch
  .type reprise_fibre_switch, @function
reprise_fibre_switch:
  sub sp, sp, #160
  stp x29, x30, [sp]
  stp x19, x20, [sp, #16]
  stp x21, x22, [sp, #32]
  stp x23, x24, [sp, #48]
  stp x25, x26, [sp, #64]
  stp x27, x28, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x29, x30, [sp]
  ldp x19, x20, [sp, #16]
  ldp x21, x22, [sp, #32]
  ldp x23, x24, [sp, #48]
  ldp x25, x26, [sp, #64]
  ldp x27, x28, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
  .size reprise_fibre_switch, .-reprise_fibre_switch
)");

#endif

namespace reprise::fibre {

#if defined(__x86_64__) || defined(__aarch64__)

extern "C" void reprise_fibre_switch(void** from, void* to);

void prepare_context(Context& context, unsigned char* stack, size_t stack_bytes, void (*entry)()) {
  auto* top = reinterpret_cast<uint64_t*>(reinterpret_cast<uintptr_t>(stack + stack_bytes) / 16 * 16);
#if defined(__x86_64__)
  *--top = 0;  // return address of entry(): aligns the stack as after a call
  *--top = reinterpret_cast<uintptr_t>(entry);
  for (int saved = 0; saved < 6; ++saved) *--top = 0;
#else
  for (int saved = 0; saved < 20; ++saved) *--top = 0;
  top[1] = reinterpret_cast<uintptr_t>(entry);  // x30: address to which ret jumps
#endif
  context.stack_pointer = top;
}

void switch_context(Context& from, Context& to) { reprise_fibre_switch(&from.stack_pointer, to.stack_pointer); }

#else

void prepare_context(Context& context, unsigned char* stack, size_t stack_bytes, void (*entry)()) {
  getcontext(&context.saved);
  context.saved.uc_stack.ss_sp = stack;
  context.saved.uc_stack.ss_size = stack_bytes;
  context.saved.uc_link = nullptr;
  makecontext(&context.saved, entry, 0);
}

void switch_context(Context& from, Context& to) { swapcontext(&from.saved, &to.saved); }

#endif

}  // namespace reprise::fibre
