// A program's plans as a file, plan.bin: for a program that is compiled already, on a board without a compiler (tools/FORMATS.md 2.2).
// Here beside plan_header.h, because both are the same plans. What plan.h has the compiler prove, the program proves when it reads this file.
#pragma once

#include <string>
#include <vector>

#include "tools/lowering/owned_plan.h"

namespace reprise {

// One plan of a program, with what goes with it in plan.h. The names of slots, links and gradients are comments there, and not in the file.
struct FiledPlan {
  OwnedPlan plan;
  std::string recipe, summary, hash;
  std::vector<uint64_t> smaller_budgets = {};
};

// What a plan takes for granted of the program that runs it, as a sum: the kernels with their arguments, the attributes with their fields, the types.
// A program with another one would read a row's numbers as something else.
std::string contract_of_kernels();

// The first plan is that in which a program begins.
std::string plan_file(const std::vector<FiledPlan>& plans);

// Whether a file of these bytes is meant as a plan file, of whatever version.
bool is_plan_file(const std::string& bytes);

// `file` begins the line of every error. Throws UserError where a byte is not as it was written, where another version of Reprise wrote the
// file, whose kernels take other arguments, and where a plan was not made from the recipe beside it. That the plans are safe to run, it does
// not say: check() does (lib/check.h).
std::vector<FiledPlan> parse_plan_file(const std::string& bytes, const std::string& file);

}  // namespace reprise
