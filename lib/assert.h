// What must hold unless a programmer is wrong: at a kernel's door, in a layout. What data, plans or boards can get wrong answers a Status instead.
// Here because lib has no exceptions and no output of its own: who breaks an assertion is told to assertion_failed(), which does not return.
#pragma once

#include <cstdint>

// REPRISE_ASSERT(condition, "what must hold"): a sentence for the person who reads it. REPRISE_NO_ASSERTIONS leaves them all out.
#if defined(REPRISE_NO_ASSERTIONS)
#define REPRISE_ASSERT(condition, must_hold) static_cast<void>(0)
#else
#define REPRISE_ASSERT(condition, must_hold) \
  static_cast<void>(__builtin_expect(static_cast<bool>(condition), 1) || (::reprise::assertion_failed(must_hold, __FILE__, __LINE__), false))
#endif

namespace reprise {

// lib's own stops the processor where it stands, which is all that a board without an operating system can do. It is a weak symbol: a port that
// can say more defines its own.
[[noreturn]] void assertion_failed(const char* must_hold, const char* file, uint32_t line);

}  // namespace reprise
