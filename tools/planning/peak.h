// Where a program holds the most, and what.
// Here because a refusal, the audit and its page must name the same row.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/lowering/owned_plan.h"

namespace reprise {

// The row of micro_first at which most bytes are live, and the slots that are.
struct PeakRow {
  uint32_t row = 0;
  uint64_t bytes = 0;
  std::vector<uint32_t> slots;  // largest first
};
PeakRow find_peak(const OwnedProgram& program);

}  // namespace reprise
