// The instructions of PTX that have to do with registers alone.
// Here as one table, opcode by opcode, so that what each computes can be held against the PTX manual.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tests/ports/ptx_program.h"

namespace reprise::ptx {

struct Arithmetic {
  std::string opcode;
  Step step = nullptr;
  std::vector<Width> operands;  // the result first
};

// Null where the opcode is no such instruction.
const Arithmetic* find_arithmetic(std::string_view opcode);

}  // namespace reprise::ptx
