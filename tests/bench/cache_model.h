// The caches of a core, simulated: which lines a sequence of reads and writes moves between them, and to and from memory.
// Here because traffic is a count: it is the same on every machine and under any load, where seconds are not.
//
// Every level has sets of lines and forgets the least recently used; a write fetches its line and stays until the line is forgotten. A level
// keeps what it has given to the one before it. What the hardware fetches ahead is not modelled, nor that a level may be shared or hold
// only what others have forgotten: what a level moves is counted, not when.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "lib/cpu/core_any.h"
#include "lib/cpu/core_armv8.h"
#include "lib/cpu/core_intel_bf16.h"
#include "lib/cpu/core_skylake_sp.h"
#include "lib/cpu/core_zen.h"

namespace reprise::bench {

constexpr uint64_t kLineBytes = 64;
constexpr int kCacheLevels = 3;

struct CacheShape {
  uint32_t kibibytes, ways;
};
struct ModelledCore {
  const char* name;
  CacheShape levels[kCacheLevels];
  const CpuCore* core;       // how products are blocked on it
  bool uses_written = true;  // a line that is written back is its level's latest
};
// A core's own caches, and its share of the last level: of Skylake-SP that of two cores, of the Xeon of two too, of the A78AE a cluster's.
constexpr ModelledCore kX86Cores[] = {{"Skylake-SP", {{32, 8}, {1024, 16}, {2816, 11}}, &kSkylakeSpCore},
                                      {"Xeon with AMX", {{48, 12}, {2048, 16}, {4096, 16}}, &kIntelBf16Core},
                                      {"Zen 4", {{32, 8}, {1024, 8}, {4096, 16}}, &kZenCore},
                                      {"Zen 5", {{48, 12}, {1024, 16}, {4096, 16}}, &kZenCore}};
constexpr ModelledCore kArmCores[] = {{"Cortex-A78AE", {{64, 4}, {256, 8}, {2048, 16}}, &kArmv8Core},
                                      {"wide Arm", {{128, 8}, {4096, 16}, {8192, 16}}, &kArmv8Core}};  // as Apple's large cores
// What callgrind simulates, told --D1=65536,4,64 --LL=262144,8,64: two levels, and what is written back goes past the second.
constexpr ModelledCore kAsCallgrind[] = {{"callgrind", {{64, 4}, {256, 8}, {64, 1}}, &kAnyCore, false}};

// Lines between a level and what lies behind it.
struct LinesMoved {
  uint64_t fetched = 0, written = 0;
};
using CoreTraffic = std::array<LinesMoved, kCacheLevels>;

class CacheModel {
 public:
  explicit CacheModel(const ModelledCore& core) : uses_written_(core.uses_written) {
    for (size_t level = 0; level < kCacheLevels; ++level) {
      const CacheShape& shape = core.levels[level];
      const uint32_t sets = static_cast<uint32_t>(shape.kibibytes * 1024 / (shape.ways * kLineBytes));
      levels_[level] = {sets - 1, shape.ways, std::vector<uint32_t>(uint64_t{sets} * shape.ways, kNothing)};
    }
  }

  // `line` is below 2^31 - 1.
  void touch(uint32_t line, bool writes) {
    uint32_t& latest = levels_[0].lines[uint64_t{line & levels_[0].last_set} * levels_[0].ways];
    if (latest >> 1 == line) latest |= writes;
    else touch_at(0, line, writes);
  }

  const CoreTraffic& traffic() const { return traffic_; }

 private:
  static constexpr uint32_t kNothing = ~uint32_t{0};
  struct Level {
    uint32_t last_set = 0, ways = 0;  // the sets are a power of two
    std::vector<uint32_t> lines;      // of each set the latest first; the lowest bit: written
  };

  // The line becomes its set's first, and those before it move on by one.
  void touch_at(size_t level, uint32_t line, bool writes) {
    if (level == kCacheLevels) return;
    Level& at = levels_[level];
    uint32_t* const set = at.lines.data() + uint64_t{line & at.last_set} * at.ways;
    uint32_t before = set[0], way = 0;
    while (before >> 1 != line && ++way < at.ways) std::swap(before, set[way]);
    const bool is_there = way < at.ways;
    set[0] = (is_there ? before : line << 1) | writes;
    if (!is_there) miss(level, line, before);
  }

  // `forgotten` left the set to which `line` came.
  void miss(size_t level, uint32_t line, uint32_t forgotten) {
    ++traffic_[level].fetched;
    touch_at(level + 1, line, false);
    if (forgotten == kNothing || (forgotten & 1) == 0) return;
    ++traffic_[level].written;
    if (uses_written_) touch_at(level + 1, forgotten >> 1, true);
  }

  bool uses_written_;
  std::array<Level, kCacheLevels> levels_;
  CoreTraffic traffic_ = {};
};

}  // namespace reprise::bench
