// The board of ports/cortex_m/train.cpp where that program runs on the host, for its bits.
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
