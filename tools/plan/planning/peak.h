// Finds the row of a program with the most live bytes. An error message, the audit and its page
// must name the same row.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/plan/lowering/owned_plan.h"

namespace reprise {

// The row of a program with the most live bytes, and the slots that are live there.
struct PeakRow {
  uint32_t row = 0;
  uint64_t bytes = 0;
  std::vector<uint32_t> slots;  // largest first
};
PeakRow find_peak(const OwnedProgram& program);

}  // namespace reprise
