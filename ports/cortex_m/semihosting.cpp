// Text output and the end of a program, by semihosting: the program executes a breakpoint with the
// number of an operation, and a debugger, or QEMU, carries it out. Without either, the processor
// stops at the breakpoint. See Arm, "Semihosting for AArch32 and AArch64", 2.0: SYS_WRITE0,
// SYS_EXIT_EXTENDED.
#include "ports/cortex_m/board.h"

namespace reprise {
namespace {

constexpr uint32_t kWriteWords = 0x04, kEnd = 0x20, kApplicationExit = 0x20026;

void ask(uint32_t operation, const void* argument) {
  register uint32_t r0 __asm("r0") = operation;
  register const void* r1 __asm("r1") = argument;
  __asm volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}

}  // namespace

void board_say(const char* words) { ask(kWriteWords, words); }

void board_end(int status) {
  const uint32_t end[2] = {kApplicationExit, static_cast<uint32_t>(status)};
  for (;;) ask(kEnd, end);
}

}  // namespace reprise
