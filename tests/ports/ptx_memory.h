// Loads and stores of PTX, and registers that are cut into parts and joined.
// Here apart from arithmetic because they name spaces: global, shared, local, parameters, and generic addresses of these.
#pragma once

#include <optional>
#include <string_view>

#include "tests/ports/ptx_program.h"

namespace reprise::ptx {

struct MemoryAccess {
  Step step = nullptr;
  bool is_load = false, is_signed = false;
  uint8_t count = 1, bytes = 0;  // elements, and the bytes of one
};

// Nothing where the opcode is no load or store, or one that is not known.
std::optional<MemoryAccess> find_access(std::string_view opcode);

void join_parts(Machine& machine, const Instruction& i, uint32_t lanes);
void split_parts(Machine& machine, const Instruction& i, uint32_t lanes);

}  // namespace reprise::ptx
