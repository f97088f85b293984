// Writes numbers as text, for programs of boards, which have board_say() but no printf.
#pragma once

#include <stdint.h>

#include "lib/status.h"
#include "ports/cortex_m/board.h"

namespace reprise {

// Writes `number` in decimal digits.
inline void say(uint64_t number) {
  char digits[24];
  char* first = digits + sizeof digits - 1;
  *first = 0;
  do *--first = static_cast<char>('0' + number % 10);
  while ((number /= 10) != 0);
  board_say(first);
}

// Writes `bits` as 16 hexadecimal digits.
inline void say_bits(uint64_t bits) {
  char digits[17] = {};
  for (int i = 0; i < 16; ++i) digits[i] = "0123456789abcdef"[bits >> (60 - 4 * i) & 15];
  board_say(digits);
}

// Writes a number that is not negative, with six decimals, and then its bits.
inline void say_decimals(double number) {
  const uint64_t millionths = number < 1e12 ? static_cast<uint64_t>(number * 1e6 + 0.5) : 0;
  char decimals[8] = ".000000";
  uint64_t rest = millionths % 1000000;
  for (int i = 6; i > 0; --i, rest /= 10) decimals[i] = static_cast<char>('0' + rest % 10);
  say(millionths / 1000000), board_say(decimals), board_say(" bits "), say_bits(__builtin_bit_cast(uint64_t, number));
}

// Writes one line for an error, and nothing for success. Returns the exit status of the program: 0
// or 1.
inline int say_outcome(const Status& status) {
  if (status.ok()) return 0;
  board_say(status.message), board_say(" ("), say(status.detail), board_say(")\n");
  return 1;
}

}  // namespace reprise
