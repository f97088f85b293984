// The PTX instructions that use only registers, as a table with one line for each opcode, so that
// each line can be compared with the PTX manual.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tests/ports/ptx/ptx_program.h"

namespace reprise::ptx {

struct Arithmetic {
  std::string opcode;
  Step step = nullptr;
  std::vector<Width> operands;  // widths of the operands; the result is the first
};

// Returns the entry of `opcode`; null if the table does not have it.
const Arithmetic* find_arithmetic(std::string_view opcode);

}  // namespace reprise::ptx
