// A program's plans as a file, plan.bin, for a compiled program on a board without a compiler
// (tools/FILES.md). It contains the plans of plan.h. The compiler proves plan.h; the program
// proves this file when it reads it.
#pragma once

#include <string>
#include <vector>

#include "tools/plan/lowering/owned_plan.h"

namespace reprise {

// One plan of the file, with the texts that plan.h contains for the plan. The names of slots, links
// and gradients, which are comments in plan.h, are not in the file.
struct FiledPlan {
  OwnedPlan plan;
  std::string recipe, summary, hash;
  std::vector<uint64_t> smaller_budgets = {};
};

// Returns a checksum of what a plan requires of its program: the kernels with their arguments, the
// attributes with their fields, the types. A program with another checksum would misread a row's
// numbers.
std::string contract_of_kernels();

// Returns the file's bytes. A program starts with the first plan.
std::string plan_file(const std::vector<FiledPlan>& plans);

// True if the bytes begin as a plan file of any version does.
bool is_plan_file(const std::string& bytes);

// Returns the plans of the file. Throws UserError, whose message begins with `file`, if: a byte has
// changed; another version of Reprise, whose kernels have other arguments, wrote the file; a plan
// was not made from its recipe. It does not prove that the plans are safe to run: check() does
// (lib/check.h).
std::vector<FiledPlan> parse_plan_file(const std::string& bytes, const std::string& file);

}  // namespace reprise
