// Numbers as words, for programs of boards that talk by board_say().
// Here because a board has no printf.
#pragma once

#include <stdint.h>

#include "ports/cortex_m/board.h"

namespace reprise {

inline void say(uint64_t number) {
  char digits[24];
  char* first = digits + sizeof digits - 1;
  *first = 0;
  do *--first = static_cast<char>('0' + number % 10);
  while ((number /= 10) != 0);
  board_say(first);
}

}  // namespace reprise
