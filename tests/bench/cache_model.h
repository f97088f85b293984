// The caches of a core, simulated: which lines a sequence of reads and writes moves between them, and to and from memory.
// Here because traffic is a count: it is the same on every machine and under any load, where seconds are not.
//
// Every level has sets of lines and forgets the least recently used; a write fetches its line and stays until the line is forgotten. What the
// hardware fetches ahead is not modelled, nor that a level may be shared: what a level moves is counted, not when.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace reprise::bench {

constexpr uint64_t kLineBytes = 64;
constexpr int kCacheLevels = 3;

struct CacheShape {
  uint32_t kibibytes, ways;
};
struct ModelledCore {
  const char* name;
  CacheShape levels[kCacheLevels];
};
// A core's own caches, and its share of the last level.
constexpr ModelledCore kModelledCores[] = {
    {"Skylake-SP", {{32, 8}, {1024, 16}, {2816, 11}}},    // a server part: 1.375 MiB of L3 a core, of two cores
    {"Zen 5", {{48, 12}, {1024, 16}, {4096, 16}}},
    {"Cortex-A78AE", {{64, 4}, {256, 8}, {2048, 16}}},
    {"wide", {{128, 8}, {4096, 16}, {8192, 16}}},         // as Apple's large cores
};

class CacheModel {
 public:
  explicit CacheModel(const ModelledCore& core) {
    for (int level = 0; level < kCacheLevels; ++level) {
      const CacheShape& shape = core.levels[level];
      Level& made = levels_[static_cast<size_t>(level)];
      made.ways = shape.ways;
      made.sets = shape.kibibytes * 1024 / (shape.ways * kLineBytes);
      made.lines.assign(uint64_t{made.sets} * shape.ways, kNothing);
    }
  }

  void touch(uint64_t line, bool writes) {
    uint64_t& latest = levels_[0].lines[uint64_t{line % levels_[0].sets} * levels_[0].ways];
    if (latest >> 1 == line) latest |= writes ? 1 : 0;
    else touch_at(0, line, writes);
  }

  // Lines moved between a level and what lies behind it, in both directions.
  const std::array<uint64_t, kCacheLevels>& moved() const { return moved_; }

 private:
  static constexpr uint64_t kNothing = ~uint64_t{0};
  struct Level {
    uint32_t sets = 0, ways = 0;
    std::vector<uint64_t> lines;  // of each set the latest first; the lowest bit: written
  };

  void touch_at(size_t level, uint64_t line, bool writes) {
    if (level == kCacheLevels) return;
    Level& at = levels_[level];
    uint64_t* const set = at.lines.data() + uint64_t{line % at.sets} * at.ways;
    uint32_t way = 0;
    while (way < at.ways && set[way] >> 1 != line) ++way;
    const bool is_there = way < at.ways;
    if (!is_there) --way;
    const uint64_t entry = (is_there ? set[way] : line << 1) | (writes ? 1 : 0), forgotten = set[way];
    std::copy_backward(set, set + way, set + way + 1);
    set[0] = entry;
    if (!is_there) miss(level, line, forgotten);
  }

  // `forgotten` left the set to which `line` came.
  void miss(size_t level, uint64_t line, uint64_t forgotten) {
    ++moved_[level];
    touch_at(level + 1, line, false);
    if (forgotten == kNothing || (forgotten & 1) == 0) return;
    ++moved_[level];
    touch_at(level + 1, forgotten >> 1, true);
  }

  std::array<Level, kCacheLevels> levels_;
  std::array<uint64_t, kCacheLevels> moved_ = {};
};

}  // namespace reprise::bench
