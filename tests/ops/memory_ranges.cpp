// See memory_ranges.h.
#include "tests/ops/memory_ranges.h"

#include <algorithm>
#include <utility>

namespace reprise::test {

MemoryRanges::MemoryRanges(std::vector<MemoryRange> ranges) : ranges_(std::move(ranges)) {
  std::sort(ranges_.begin(), ranges_.end(),
            [](const MemoryRange& a, const MemoryRange& b) { return a.begin < b.begin; });
}

const MemoryRange& MemoryRanges::nearest(uint64_t address) const {
  const auto behind = std::upper_bound(ranges_.begin(), ranges_.end(), address,
                                       [](uint64_t at, const MemoryRange& range) { return at < range.begin; });
  return behind == ranges_.begin() ? ranges_.front() : *std::prev(behind);
}

bool MemoryRanges::find(uint64_t address, uint64_t bytes, bool writes) const {
  const MemoryRange& range = nearest(address);
  if (address < range.begin || address + bytes > range.end) return false;
  last_ = static_cast<size_t>(&range - ranges_.data());
  return range.writable || !writes;
}

std::string MemoryRanges::fault(uint64_t address, uint64_t bytes, bool writes) const {
  const MemoryRange& range = nearest(address);
  const std::string done = std::to_string(bytes) + (writes ? " bytes are written " : " bytes are read ");
  const std::string whole = ", which has " + std::to_string(range.end - range.begin);
  if (address < range.begin) return done + std::to_string(range.begin - address) + " bytes before " + range.name;
  if (address >= range.end)
    return done + std::to_string(address - range.end) + " bytes past the end of " + range.name + whole;
  if (address + bytes > range.end) return done + "at " + place(address) + whole;
  return done + "at " + place(address) + ", an input";
}

std::string MemoryRanges::place(uint64_t address) const {
  if (empty()) return "";
  const MemoryRange& range = nearest(address);
  if (address < range.begin || address >= range.end) return "";
  return "byte " + std::to_string(address - range.begin) + " of " + range.name;
}

}  // namespace reprise::test
