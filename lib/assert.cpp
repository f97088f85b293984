// Implements assert.h: lib's own, weak definition of assertion_failed().
#include "lib/assert.h"

namespace reprise {

[[gnu::weak]] void assertion_failed(const char*, const char*, uint32_t) { __builtin_trap(); }

}  // namespace reprise
