// PTX atomics on global memory, and fences: atom, red, membar, fence. They are separate from loads
// and stores because blocks hand over data to each other with them (cuda_fibre_order.h).
#pragma once

#include <optional>
#include <string_view>

#include "tests/ports/ptx/ptx_program.h"

namespace reprise::ptx {

struct Atomic {
  Step step = nullptr;
  bool wide = false;        // a 64-bit operation
  bool has_result = false;  // true: atom; false: red
  uint32_t values = 1;      // number of values after the address
};

// Returns the atomic, or nothing if the opcode is not a known atomic.
std::optional<Atomic> find_atomic(std::string_view opcode);

// Returns the function of a fence; null if the opcode is not a fence. A fence of the block does
// nothing here, because barriers order the threads of a block.
Step find_fence(std::string_view opcode);

}  // namespace reprise::ptx
