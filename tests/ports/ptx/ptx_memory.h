// PTX loads and stores, and moves that split a register into parts or join parts. They are separate
// from arithmetic because loads and stores name a state space (global, shared, local, parameters)
// or use a generic address.
#pragma once

#include <optional>
#include <string_view>

#include "tests/ports/ptx/ptx_program.h"

namespace reprise::ptx {

struct MemoryAccess {
  Step step = nullptr;
  bool is_load = false, is_signed = false;
  uint8_t count = 1, bytes = 0;  // number of elements; bytes of one element
};

// Returns the decoded access; none if the opcode is not a known load or store.
std::optional<MemoryAccess> find_access(std::string_view opcode);

void join_parts(Machine& machine, const Instruction& i, uint32_t lanes);
void split_parts(Machine& machine, const Instruction& i, uint32_t lanes);

}  // namespace reprise::ptx
