// What a program on a Cortex-M without an operating system has of its board: words out, a clock that counts, and how much stack was used.
// Here so that a program need not know how its board talks. Words go to a debugger, or to QEMU, by semihosting; a board of one's own has a UART.
#pragma once

#include <stdint.h>

namespace reprise {

void board_say(const char* words);
// `status` 0: all is well.
[[noreturn]] void board_end(int status);

// Ticks of the processor's clock since the start.
uint64_t board_ticks();

// The stack lies above a guard that no access passes. What a call has used of it is seen by the pattern that the start has left there.
uint64_t board_stack_bytes();   // all of it
uint64_t board_stack_used();    // the most so far

// The linker script's section for the arena (arena.ld), aligned as an arena must be.
#define REPRISE_ARENA __attribute__((section(".arena"), aligned(256)))

}  // namespace reprise
