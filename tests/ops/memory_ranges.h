// The memory that a kernel may read and write while a case runs, with one range for each tensor. A
// device that checks every access (the fibres and the PTX machine of tests/ports) uses the ranges
// to name the tensor next to a forbidden access.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace reprise::test {

// The bytes [begin, end) of a tensor, without the padding up to a multiple of kAlignment.
struct MemoryRange {
  uint64_t begin = 0, end = 0;
  bool writable = false;
  const char* name = "";
};

class MemoryRanges {
 public:
  MemoryRanges() = default;  // without ranges, every access is allowed
  explicit MemoryRanges(std::vector<MemoryRange> ranges);

  bool empty() const { return ranges_.empty(); }
  // Returns the start of the first range; end() returns the end of the last range. Both return 0 if
  // there are no ranges.
  uint64_t begin() const { return empty() ? 0 : ranges_.front().begin; }
  uint64_t end() const { return empty() ? 0 : ranges_.back().end; }
  // True if one range contains all bytes of the access, and a write is to a writable range.
  bool allow(uint64_t address, uint64_t bytes, bool writes) const {
    if (empty()) return true;
    const MemoryRange& met = ranges_[last_];
    if (address >= met.begin && address + bytes <= met.end) [[likely]]
      return met.writable || !writes;
    return find(address, bytes, writes);
  }
  // Describes a forbidden access, for example "4 bytes are read 8 bytes past the end of x, which
  // has 400".
  std::string fault(uint64_t address, uint64_t bytes, bool writes) const;
  // Returns for example "byte 12 of x"; "" if the address is in no range.
  std::string place(uint64_t address) const;

 private:
  bool find(uint64_t address, uint64_t bytes, bool writes) const;
  // Returns the last range that begins at or before `address`; the first range if all ranges begin
  // after `address`.
  const MemoryRange& nearest(uint64_t address) const;

  std::vector<MemoryRange> ranges_;  // sorted by begin; ranges do not overlap
  mutable size_t last_ = 0;          // index of the range of the latest access
};

}  // namespace reprise::test
