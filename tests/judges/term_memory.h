// The contents of a range of bytes during a replay: whole terms, and garbage between them.
#pragma once

#include <map>
#include <vector>

#include "tests/judges/terms.h"

namespace reprise::testing {

// The byte ranges that contain terms. All other bytes are garbage.
class TermMemory {
 public:
  void destroy(uint64_t from, uint64_t end) {
    auto cell = cells_.lower_bound(from);
    if (cell != cells_.begin() && std::prev(cell)->second.end > from) --cell;
    while (cell != cells_.end() && cell->first < end) cell = cells_.erase(cell);
  }
  void write(uint64_t from, uint64_t bytes, Term term) {
    destroy(from, from + bytes);
    cells_[from] = {from + bytes, term};
  }
  Term read(uint64_t from, uint64_t bytes) const {
    const auto cell = cells_.find(from);
    return cell != cells_.end() && cell->second.end == from + bytes ? cell->second.term : kNoTerm;
  }
  // Returns the starts of the terms that begin in [from, end).
  std::vector<uint64_t> starts(uint64_t from, uint64_t end) const {
    std::vector<uint64_t> list;
    for (auto cell = cells_.lower_bound(from); cell != cells_.end() && cell->first < end; ++cell)
      list.push_back(cell->first);
    return list;
  }
  uint64_t end_of(uint64_t start) const { return cells_.at(start).end; }
  bool is_garbage(uint64_t from, uint64_t end) const {
    const auto next = cells_.lower_bound(from);
    return (next == cells_.end() || next->first >= end) &&
           (next == cells_.begin() || std::prev(next)->second.end <= from);
  }

 private:
  struct Cell {
    uint64_t end;
    Term term;
  };
  std::map<uint64_t, Cell> cells_;  // disjoint ranges that contain terms, by first address
};

}  // namespace reprise::testing
