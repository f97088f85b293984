// Implements the board's functions, which ports/cortex_m/train.cpp calls, on the host. So a test
// can compare the bits of a training on host and board.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "ports/cortex_m/board.h"

namespace reprise {

void board_say(const char* words) { std::fputs(words, stdout); }
void board_end(int status) { std::exit(status); }
uint64_t board_ticks() { return 0; }
uint64_t board_stack_bytes() { return 0; }
uint64_t board_stack_used() { return 0; }

}  // namespace reprise
