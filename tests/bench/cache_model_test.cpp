// Compares the simulated caches with a simple implementation by lists, and with counts by hand.
#include "tests/bench/cache_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <random>

namespace reprise::bench {
namespace {

// A simple model of the caches, in which a set is a list with the most recent line first.
class PlainCaches {
 public:
  explicit PlainCaches(const ModelledCore& core) : core_(core) {}

  void touch(uint32_t line, bool writes, int level = 0) {
    if (level == kCacheLevels) return;
    const CacheShape& shape = core_.levels[level];
    std::list<Line>& set = sets_[level][line % (shape.kibibytes * 1024 / kLineBytes / shape.ways)];
    const auto found = std::find_if(set.begin(), set.end(), [&](const Line& each) { return each.number == line; });
    if (found != set.end()) {
      const Line again = {line, found->is_written || writes};
      set.erase(found);
      set.push_front(again);
      return;
    }
    set.push_front({line, writes});
    ++traffic[static_cast<size_t>(level)].fetched;
    touch(line, false, level + 1);
    if (set.size() > shape.ways) forget(set, level);
  }

  CoreTraffic traffic = {};

 private:
  struct Line {
    uint32_t number;
    bool is_written;
  };

  void forget(std::list<Line>& set, int level) {
    const Line last = set.back();
    set.pop_back();
    if (!last.is_written) return;
    ++traffic[static_cast<size_t>(level)].written;
    if (core_.uses_written) touch(last.number, true, level + 1);
  }

  ModelledCore core_;
  std::map<uint32_t, std::list<Line>> sets_[kCacheLevels];
};

std::vector<ModelledCore> all_cores() {
  std::vector<ModelledCore> cores(std::begin(kX86Cores), std::end(kX86Cores));
  cores.insert(cores.end(), std::begin(kArmCores), std::end(kArmCores));
  cores.insert(cores.end(), std::begin(kAsCallgrind), std::end(kAsCallgrind));
  return cores;
}

uint64_t moved(const CoreTraffic& traffic) {
  uint64_t sum = 0;
  for (const LinesMoved& level : traffic) sum += level.fetched + level.written;
  return sum;
}

// Compares the traffic of CacheModel and PlainCaches. The accesses have several strides and random
// starts, over more lines than a last level has.
TEST(CacheModel, MovesWhatPlainListsMove) {
  for (const ModelledCore& core : all_cores()) {
    CacheModel model(core);
    PlainCaches plain(core);
    std::mt19937 random(7);
    for (int walk = 0; walk < 400; ++walk) {
      const uint32_t start = random() % 300'000, stride = walk % 3 == 0 ? random() % 9000 : 1 + random() % 3,
                     steps = random() % 3000;
      const bool writes = random() % 3 == 0;
      for (uint32_t i = 0; i < steps; ++i) {
        model.touch(start + i % 700 * stride, writes);
        plain.touch(start + i % 700 * stride, writes);
      }
    }
    for (size_t level = 0; level < kCacheLevels; ++level) {
      EXPECT_EQ(model.traffic()[level].fetched, plain.traffic[level].fetched) << core.name << " level " << level;
      EXPECT_EQ(model.traffic()[level].written, plain.traffic[level].written) << core.name << " level " << level;
    }
    EXPECT_GT(moved(model.traffic()), 100'000u) << core.name;
  }
}

// 512 lines fill a first level of 32 KiB and stay there. If a set gets one line more than it has
// ways, none of its lines stays until the next pass.
TEST(CacheModel, CountsByHand) {
  CacheModel fits(kX86Cores[0]);
  for (int pass = 0; pass < 3; ++pass) {
    for (uint32_t line = 0; line < 512; ++line) fits.touch(line, false);
  }
  EXPECT_EQ(fits.traffic()[0].fetched, 512u);
  EXPECT_EQ(fits.traffic()[2].fetched, 512u);
  CacheModel collides(kX86Cores[0]);
  for (int pass = 0; pass < 3; ++pass) {
    for (uint32_t way = 0; way < 9; ++way) collides.touch(way * 64, way == 0);
  }
  EXPECT_EQ(collides.traffic()[0].fetched, 27u);
  EXPECT_EQ(collides.traffic()[0].written, 3u);
  EXPECT_EQ(collides.traffic()[1].fetched, 9u);
  EXPECT_EQ(collides.traffic()[1].written, 0u);
}

}  // namespace
}  // namespace reprise::bench
