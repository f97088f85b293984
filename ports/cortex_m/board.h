// The functions of a Cortex-M board without an operating system: text output, a clock, and the use
// of the stack. Text goes to a debugger, or to QEMU, by semihosting (semihosting.cpp). A board of
// your own can use a UART instead.
#pragma once

#include <stdint.h>

namespace reprise {

// Writes the text `words`, which ends with a zero.
void board_say(const char* words);
// Ends the program. A `status` of 0 means success.
[[noreturn]] void board_end(int status);

// Returns the ticks of the processor's clock since the start.
uint64_t board_ticks();

// Returns the size of the stack in bytes. Every access to the guard below the stack causes a fault.
uint64_t board_stack_bytes();
// Returns the maximum bytes of the stack that have been used so far. The start code fills the stack
// with a pattern; bytes without the pattern have been used.
uint64_t board_stack_used();

// Places the arena in the section that the linker script reserves for it (sections.ld), aligned as
// an arena must be.
#define REPRISE_ARENA __attribute__((section(".arena"), aligned(256)))

}  // namespace reprise
