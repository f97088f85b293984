// The code from reset to main, and the fault handlers: a fault writes one line and ends the
// program. See ARMv7-M Architecture Reference Manual, B1.5 and B3.2 to B3.5.
#include <string.h>

#include "ports/cortex_m/board.h"

extern "C" {
// Symbols of the linker script.
extern unsigned char board_data_begin[], board_data_end[], board_data_image[], board_bss_begin[], board_bss_end[];
extern unsigned char board_stack_guard[], board_stack_begin[], board_stack_end[];
extern void (*board_init_begin[])();
extern void (*board_init_end[])();
int main();
void board_reset();
}

namespace reprise {
namespace {

volatile uint32_t& control(uint32_t address) { return *reinterpret_cast<volatile uint32_t*>(address); }

constexpr uint32_t kCoprocessors = 0xe000ed88, kFaultsEnabled = 0xe000ed24, kClockControl = 0xe000e010,
                   kClockReload = 0xe000e014, kClock = 0xe000e018;
constexpr uint32_t kClockPeriod = 1u << 24;
constexpr uint32_t kPattern = 0x5a5a5a5a;

volatile uint32_t periods = 0;  // number of completed periods of the clock

void enable_floats() {
  control(kCoprocessors) = control(kCoprocessors) | 0xfu << 20;  // full access to CP10 and CP11 (floating point)
  __asm volatile("dsb\n isb" ::: "memory");
}

// Sets up a guard below the stack, which stops an overflow before it reaches other memory. From
// ARMv8-M on, processors have a stack limit register.
void guard_stack() {
#if __ARM_ARCH >= 8
  __asm volatile("msr msplim, %0" : : "r"(board_stack_begin));
#else
  constexpr uint32_t kControl = 0xe000ed94, kNumber = 0xe000ed98, kBase = 0xe000ed9c, kSize = 0xe000eda0;
  control(kNumber) = 0;
  control(kBase) = reinterpret_cast<uint32_t>(board_stack_guard);
  control(kSize) = 1u << 28 | 4u << 1 | 1u;  // no execution, no access, 32 bytes, enabled
  control(kControl) = 5;                     // enabled; other memory has its default access
#endif
  control(kFaultsEnabled) = control(kFaultsEnabled) | 7u << 16;  // enables memory, bus and usage faults
  __asm volatile("dsb\n isb" ::: "memory");
}

void paint_stack() {
  volatile uint32_t* const top = static_cast<uint32_t*>(__builtin_frame_address(0)) - 16;
  for (volatile uint32_t* word = reinterpret_cast<uint32_t*>(board_stack_begin); word < top; ++word) *word = kPattern;
}

void start_clock() {
  control(kClockReload) = kClockPeriod - 1;
  control(kClock) = 0;
  control(kClockControl) = 7;  // counts the processor's clock, with an interrupt at the end of each period
}

}  // namespace

uint64_t board_ticks() {
  for (;;) {
    const uint32_t before = periods, left = control(kClock);
    if (before == periods) return uint64_t{before} * kClockPeriod + (kClockPeriod - 1 - left);
  }
}

uint64_t board_stack_bytes() { return static_cast<uint64_t>(board_stack_end - board_stack_begin); }

uint64_t board_stack_used() {
  const uint32_t* word = reinterpret_cast<const uint32_t*>(board_stack_begin);
  while (reinterpret_cast<const unsigned char*>(word) < board_stack_end && *word == kPattern) ++word;
  return static_cast<uint64_t>(board_stack_end - reinterpret_cast<const unsigned char*>(word));
}

}  // namespace reprise

extern "C" {

void board_reset() {
  reprise::enable_floats();
  memcpy(board_data_begin, board_data_image, static_cast<size_t>(board_data_end - board_data_begin));
  memset(board_bss_begin, 0, static_cast<size_t>(board_bss_end - board_bss_begin));
  reprise::paint_stack();
  reprise::guard_stack();
  reprise::start_clock();
  for (void (**init)() = board_init_begin; init < board_init_end; ++init) (*init)();
  reprise::board_end(main());
}

void board_clock() { reprise::periods = reprise::periods + 1; }

// Handles a fault. `stack` is the stack pointer at the fault; it shows an overflow even if a large
// frame lies entirely below the guard, where a board may have no memory.
[[noreturn]] void board_fault(const unsigned char* stack) {
  if (stack < board_stack_begin) {
    reprise::board_say(
        "fault: the stack has overflowed: give it more stack_bytes in the board's linker script, or STACK=192K\n");
  } else {
    reprise::board_say("fault: the program has reached an address or an instruction that is none\n");
  }
  reprise::board_end(1);
}

// Handles a fault: passes the stack pointer to board_fault() and sets it to the end of the stack.
// After an overflow the handler would otherwise have no stack.
__attribute__((naked)) void board_on_fault() {
  __asm volatile("mov r0, sp\n ldr r1, =board_stack_end\n mov sp, r1\n b board_fault");
}

// The vector table: the initial stack pointer, and the handlers.
__attribute__((section(".vectors"), used)) const void* const board_vectors[16] = {
    board_stack_end,
    reinterpret_cast<void*>(board_reset),
    reinterpret_cast<void*>(
        board_on_fault),  // NMI; then hard, memory, bus, usage and secure faults
    reinterpret_cast<void*>(board_on_fault),
    reinterpret_cast<void*>(board_on_fault),
    reinterpret_cast<void*>(board_on_fault),
    reinterpret_cast<void*>(board_on_fault),
    reinterpret_cast<void*>(board_on_fault),
    nullptr,
    nullptr,
    nullptr,
    reinterpret_cast<void*>(board_on_fault),  // SVC
    reinterpret_cast<void*>(board_on_fault),  // debug monitor
    nullptr,                                  // reserved
    reinterpret_cast<void*>(board_on_fault),  // PendSV
    reinterpret_cast<void*>(board_clock)};    // SysTick
}
