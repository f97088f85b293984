// Assertions: conditions that only a programmer's error can break, such as those on a kernel's
// arguments or on a layout. Errors that data, plans or boards can cause return a Status instead.
// lib has no exceptions and no output of its own: a failed assertion calls assertion_failed(),
// which does not return.
#pragma once

#include <cstdint>

// Calls assertion_failed() if `condition` is false. `must_hold` is a string literal, a sentence
// that states what is required. REPRISE_NO_ASSERTIONS removes every assertion; the conditions are
// then not evaluated.
#if defined(REPRISE_NO_ASSERTIONS)
#define REPRISE_ASSERT(condition, must_hold) static_cast<void>(0)
#else
#define REPRISE_ASSERT(condition, must_hold)                             \
  static_cast<void>(__builtin_expect(static_cast<bool>(condition), 1) || \
                    (::reprise::assertion_failed(must_hold, __FILE__, __LINE__), false))
#endif

namespace reprise {

// Ends the program and never returns. `must_hold` is the sentence of the assertion; `file` and
// `line` are its place in the source. lib's own definition executes a trap instruction, which is
// all that a board without an operating system can do. That definition is a weak symbol: a port
// that can print the message defines its own.
[[noreturn]] void assertion_failed(const char* must_hold, const char* file, uint32_t line);

}  // namespace reprise
