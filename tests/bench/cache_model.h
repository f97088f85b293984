// Simulates the caches of a core: which lines a sequence of reads and writes moves between the
// caches, and to and from memory. Unlike seconds, this traffic is a count. It is the same on every
// machine and under any load.
//
// Every level has sets of lines, and evicts the least recently used line. A write fetches its line,
// and the line is written back when it is evicted. A level keeps the lines that it has passed to
// the previous level. The model has no hardware prefetches, shared levels or victim caches. It
// counts the lines that each level moves, but it has no time.
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
  const CpuCore* core;       // blocking of products for this core
  bool uses_written = true;  // a written-back line becomes the most recent line of the level that receives it
};
// The private caches of a core, and a part of the last level: for Skylake-SP and the Xeon the share
// of two cores, and for the A78AE the share of a cluster.
constexpr ModelledCore kX86Cores[] = {{"Skylake-SP", {{32, 8}, {1024, 16}, {2816, 11}}, &kSkylakeSpCore},
                                      {"Xeon with AMX", {{48, 12}, {2048, 16}, {4096, 16}}, &kIntelBf16Core},
                                      {"Zen 4", {{32, 8}, {1024, 8}, {4096, 16}}, &kZenCore},
                                      {"Zen 5", {{48, 12}, {1024, 16}, {4096, 16}}, &kZenCore}};
constexpr ModelledCore kArmCores[] = {{"Cortex-A78AE", {{64, 4}, {256, 8}, {2048, 16}}, &kArmv8Core},
                                      // Similar to Apple's large cores.
                                      {"wide Arm", {{128, 8}, {4096, 16}, {8192, 16}}, &kArmv8Core}};
// The simulation of callgrind with --D1=65536,4,64 --LL=262144,8,64. It has two levels, and a line
// that is written back bypasses the second level.
constexpr ModelledCore kAsCallgrind[] = {{"callgrind", {{64, 4}, {256, 8}, {64, 1}}, &kAnyCore, false}};

// Numbers of lines that a level fetches from the next level, and writes back to the next level.
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

  // Records an access. `line` must be below 2^31 - 1.
  void touch(uint32_t line, bool writes) {
    uint32_t& latest = levels_[0].lines[uint64_t{line & levels_[0].last_set} * levels_[0].ways];
    if (latest >> 1 == line) latest |= writes;
    else touch_at(0, line, writes);
  }

  const CoreTraffic& traffic() const { return traffic_; }

 private:
  static constexpr uint32_t kNothing = ~uint32_t{0};
  struct Level {
    uint32_t last_set = 0, ways = 0;  // `last_set` is the number of sets, a power of two, minus 1
    std::vector<uint32_t> lines;      // by set, the most recent first; the lowest bit is set if the line was written
  };

  // Makes the line the first of its set. The lines before it move back by one. If the set did not
  // contain the line, evicts the set's last line and fetches the line.
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

  // Fetches `line` from the next level. `forgotten` is the entry of Level::lines that was evicted
  // for it; kNothing if the way was empty.
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
