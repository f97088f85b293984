// See assert.h.
#include "lib/assert.h"

namespace reprise {

[[gnu::weak]] void assertion_failed(const char*, const char*, uint32_t) { __builtin_trap(); }

}  // namespace reprise
