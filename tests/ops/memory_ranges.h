// What of memory a kernel may read and write while a case runs, tensor by tensor.
// Here so that a device that meets single accesses (tests/ports: the fibres and the PTX machine) says which tensor one of them misses.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace reprise::test {

// The bytes [begin, end) of a tensor that are its own: what rounds it up to kAlignment is nobody's.
struct MemoryRange {
  uint64_t begin = 0, end = 0;
  bool writable = false;
  const char* name = "";
};

class MemoryRanges {
 public:
  MemoryRanges() = default;  // none are known: everything is allowed
  explicit MemoryRanges(std::vector<MemoryRange> ranges);

  bool empty() const { return ranges_.empty(); }
  // From the first range's begin to the last one's end; 0 where there is none.
  uint64_t begin() const { return empty() ? 0 : ranges_.front().begin; }
  uint64_t end() const { return empty() ? 0 : ranges_.back().end; }
  // An access lies in one range.
  bool allow(uint64_t address, uint64_t bytes, bool writes) const {
    if (empty()) return true;
    const MemoryRange& met = ranges_[last_];
    if (address >= met.begin && address + bytes <= met.end) [[likely]]
      return met.writable || !writes;
    return find(address, bytes, writes);
  }
  // What is wrong with an access that is not allowed: "4 bytes are read 8 bytes past the end of x, which has 400".
  std::string fault(uint64_t address, uint64_t bytes, bool writes) const;
  // "byte 12 of x", or "" where nothing is known.
  std::string place(uint64_t address) const;

 private:
  bool find(uint64_t address, uint64_t bytes, bool writes) const;
  // The last one that begins at the address or before it, else the first.
  const MemoryRange& nearest(uint64_t address) const;

  std::vector<MemoryRange> ranges_;  // by their begins; none reaches into another
  mutable size_t last_ = 0;          // where the last access was
};

}  // namespace reprise::test
