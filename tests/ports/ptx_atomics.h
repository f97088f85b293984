// Atomics on global memory, and fences: atom, red, membar, fence.
// Here apart from loads and stores because these are what one block hands something over to another by (cuda_fibre_order.h).
#pragma once

#include <optional>
#include <string_view>

#include "tests/ports/ptx_program.h"

namespace reprise::ptx {

struct Atomic {
  Step step = nullptr;
  bool wide = false;        // of 64 bits
  bool has_result = false;  // atom, not red
  uint32_t values = 1;      // behind the address
};

// Nothing where the opcode is no atomic, or one that is not known.
std::optional<Atomic> find_atomic(std::string_view opcode);

// Null where the opcode is no fence. One for a block alone orders nothing here: blocks order their own threads by barriers.
Step find_fence(std::string_view opcode);

}  // namespace reprise::ptx
