// Finds the peak of peak.h.
#include "tools/plan/planning/peak.h"

#include <algorithm>

namespace reprise {

PeakRow find_peak(const OwnedProgram& program) {
  std::vector<int64_t> change(program.rows.size() + 1, 0);
  for (const Slot& slot : program.slots) {
    change[slot.first_row] += static_cast<int64_t>(slot.tensor.bytes);
    change[slot.end_row] -= static_cast<int64_t>(slot.tensor.bytes);
  }
  PeakRow peak;
  int64_t live = 0;
  for (uint32_t row = 0; row < program.rows.size(); ++row) {
    live += change[row];
    if (static_cast<uint64_t>(live) > peak.bytes) {
      peak.bytes = static_cast<uint64_t>(live);
      peak.row = row;
    }
  }
  for (uint32_t s = 0; s < program.slots.size(); ++s) {
    if (program.slots[s].first_row <= peak.row && peak.row < program.slots[s].end_row) peak.slots.push_back(s);
  }
  std::stable_sort(peak.slots.begin(), peak.slots.end(), [&](uint32_t a, uint32_t b) {
    return program.slots[a].tensor.bytes > program.slots[b].tensor.bytes;
  });
  return peak;
}

}  // namespace reprise
