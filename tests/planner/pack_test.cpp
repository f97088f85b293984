// Judges general packing: random problems with an O(n^2) check and with an exhaustive optimum, hard
// instances, and bad files. Layouts that no chain recursion gives use this packer. If it overlapped
// two buffers or claimed a wrong bound, all these layouts would be wrong.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>

#include "tools/files/io/error.h"
#include "tools/plan/layout/pack.h"
#include "tools/plan/layout/pack_command.h"

namespace reprise {
namespace {

std::vector<PackBuffer> random_buffers(uint32_t seed, int count, uint64_t span, uint64_t largest) {
  std::mt19937 engine(seed);
  const auto upto = [&](uint64_t maximum) { return std::uniform_int_distribution<uint64_t>(0, maximum)(engine); };
  std::vector<PackBuffer> buffers;
  for (int i = 0; i < count; ++i) {
    const uint64_t lower = upto(span - 1), upper = lower + 1 + upto(span - 1 - lower);
    buffers.push_back({lower, upper, 1 + upto(largest - 1)});
  }
  return buffers;
}

// Returns twelve or a few more buffers that fill the memory. At each time two buffers die, and one
// or two buffers of the same total size are born. If the dead buffers were not adjacent, the
// optimum may exceed the maximum sum of live bytes. This happens in one of about fifty cases.
std::vector<PackBuffer> crowded_buffers(uint32_t seed) {
  std::mt19937 engine(seed);
  const auto between = [&](uint64_t low, uint64_t high) {
    return std::uniform_int_distribution<uint64_t>(low, high)(engine);
  };
  std::vector<PackBuffer> buffers;
  std::vector<size_t> live;
  const auto give_birth = [&](uint64_t time, uint64_t size) {
    live.push_back(buffers.size());
    buffers.push_back({time, 99, size});
  };
  for (int i = 0; i < 4; ++i) give_birth(0, between(1, 6));
  for (uint64_t time = 1; buffers.size() < 12; ++time) {
    while (live.size() < 3) give_birth(time - 1, between(1, 6));
    uint64_t freed = 0;
    for (int i = 0; i < 2; ++i) {
      const size_t dying = between(0, live.size() - 1);
      buffers[live[dying]].upper = time;
      freed += buffers[live[dying]].size;
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(dying));
    }
    const uint64_t share = between(1, freed);
    give_birth(time, share);
    if (share < freed) give_birth(time, freed - share);
  }
  return buffers;
}

// Returns a description of the first fault; "" if there is none.
std::string fault_of(const std::vector<PackBuffer>& buffers, const std::vector<uint64_t>& offsets, uint64_t packed) {
  if (buffers.size() != offsets.size()) return "not one offset per buffer";
  uint64_t highest = 0;
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (offsets[i] > packed) return std::to_string(i) + " lies above the highest end";
    highest = std::max(highest, offsets[i] + buffers[i].size);
    for (size_t j = 0; j < i; ++j) {
      const bool together = buffers[i].lower < buffers[j].upper && buffers[j].lower < buffers[i].upper;
      const bool apart = offsets[i] + buffers[i].size <= offsets[j] || offsets[j] + buffers[j].size <= offsets[i];
      if (together && !apart) return std::to_string(i) + " overlaps " + std::to_string(j);
    }
  }
  return highest == packed ? "" : "the highest end is " + std::to_string(highest);
}

uint64_t live_bound(const std::vector<PackBuffer>& buffers) {
  uint64_t maximum = 0;
  for (const PackBuffer& at : buffers) {
    uint64_t live = 0;
    for (const PackBuffer& b : buffers) live += b.lower <= at.lower && at.lower < b.upper ? b.size : 0;
    maximum = std::max(maximum, live);
  }
  return maximum;
}

// Tries all orders of placing buffers, each at the lowest offset above the overlapping earlier
// ones. This finds an optimum: in some optimal packing, taken in the order of offsets, each buffer
// rests on earlier buffers or the bottom.
void try_all_orders(const std::vector<PackBuffer>& buffers, std::vector<uint64_t>& tops, uint64_t last, uint64_t height,
                    uint64_t& best) {
  bool complete = true;
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (tops[i] > 0) continue;
    complete = false;
    uint64_t offset = 0;
    for (size_t j = 0; j < buffers.size(); ++j)
      if (buffers[i].lower < buffers[j].upper && buffers[j].lower < buffers[i].upper)
        offset = std::max(offset, tops[j]);
    const uint64_t top = offset + buffers[i].size;
    if (offset < last || top >= best) continue;
    tops[i] = top;
    try_all_orders(buffers, tops, offset, std::max(height, top), best);
    tops[i] = 0;
  }
  if (complete) best = height;
}

// Returns the smallest packed size below `best`; `best` if there is none.
uint64_t exhaustive_optimum(const std::vector<PackBuffer>& buffers, uint64_t best = UINT64_MAX) {
  std::vector<uint64_t> tops(buffers.size(), 0);  // end of each buffer; 0: not yet placed
  try_all_orders(buffers, tops, 0, 0, best);
  return best;
}

TEST(Pack, TinyProblemsAreOptimal) {
  for (uint32_t seed = 1; seed <= 1500; ++seed) {
    const auto buffers = random_buffers(seed, 1 + static_cast<int>(seed % 7), 4 + seed % 5, 1 + seed % 12);
    const Packing packing = pack_buffers(buffers);
    ASSERT_EQ(fault_of(buffers, packing.offsets, packing.packed_bytes), "") << "seed " << seed;
    ASSERT_TRUE(packing.feasible && packing.proven) << "seed " << seed;
    ASSERT_EQ(packing.packed_bytes, exhaustive_optimum(buffers)) << "seed " << seed;
    ASSERT_EQ(packing.lower_bound, live_bound(buffers)) << "seed " << seed;
  }
}

// If the optimum exceeds the lower bound, the packer must report the optimum as proven. It must
// accept this capacity, and refuse a capacity of one byte less.
TEST(Pack, AboveTheBoundOnlyWhereTheOptimumIs) {
  int above = 0;
  for (uint32_t seed = 1; seed <= 400; ++seed) {
    const auto buffers = crowded_buffers(seed);
    const Packing packing = pack_buffers(buffers);
    ASSERT_EQ(fault_of(buffers, packing.offsets, packing.packed_bytes), "") << "seed " << seed;
    ASSERT_TRUE(packing.proven) << "seed " << seed;
    if (packing.packed_bytes == live_bound(buffers)) continue;  // equals the lower bound, so it is optimal
    ++above;
    const uint64_t optimum = packing.packed_bytes;
    ASSERT_EQ(exhaustive_optimum(buffers, optimum + 1), optimum) << "seed " << seed;
    const Packing met = pack_buffers(buffers, {.capacity = optimum});
    ASSERT_TRUE(met.feasible && met.proven) << "seed " << seed;
    ASSERT_EQ(fault_of(buffers, met.offsets, met.packed_bytes), "") << "seed " << seed;
    const Packing refused = pack_buffers(buffers, {.capacity = optimum - 1});
    ASSERT_FALSE(refused.feasible) << "seed " << seed;
    ASSERT_TRUE(refused.proven) << "seed " << seed;
    ASSERT_EQ(fault_of(buffers, refused.offsets, refused.packed_bytes), "") << "seed " << seed;
  }
  EXPECT_GT(above, 3);  // otherwise no case has an optimum above the lower bound
}

TEST(Pack, MiddlingProblemsAreValidAndRepeat) {
  int at_the_bound = 0;
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    const auto buffers = random_buffers(seed, 30 + static_cast<int>(seed % 60), 40, 1000);
    const Packing packing = pack_buffers(buffers, {.nodes = 3000});
    ASSERT_EQ(fault_of(buffers, packing.offsets, packing.packed_bytes), "") << "seed " << seed;
    ASSERT_LE(packing.lower_bound, packing.packed_bytes) << "seed " << seed;
    ASSERT_LE(pack_buffers(buffers, {.nodes = 0}).lower_bound, packing.packed_bytes) << "seed " << seed;
    ASSERT_EQ(packing.offsets, pack_buffers(buffers, {.nodes = 3000}).offsets) << "seed " << seed;
    at_the_bound += packing.packed_bytes == packing.lower_bound;
  }
  EXPECT_GT(at_the_bound, 100);
}

TEST(Pack, AlignedOffsets) {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    auto buffers = random_buffers(seed, 12, 10, 1000);
    const Packing packing = pack_buffers(buffers, {.alignment = 256});
    for (uint64_t offset : packing.offsets) ASSERT_EQ(offset % 256, 0u) << "seed " << seed;
    for (PackBuffer& b : buffers) b.size = (b.size + 255) / 256 * 256;
    ASSERT_EQ(fault_of(buffers, packing.offsets, packing.packed_bytes), "") << "seed " << seed;
    ASSERT_EQ(packing.lower_bound, live_bound(buffers)) << "seed " << seed;
  }
}

TEST(Pack, NothingAndBuffersOfNothing) {
  const Packing none = pack_buffers({});
  EXPECT_TRUE(none.feasible && none.proven);
  EXPECT_EQ(none.packed_bytes, 0u);
  const Packing empty = pack_buffers({{0, 5, 0}, {3, 3, 7}, {1, 4, 2}});
  EXPECT_EQ(empty.packed_bytes, 2u);
  EXPECT_EQ(empty.offsets.size(), 3u);
}

TEST(Pack, TheJudgeRejectsMutants) {
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    // At time 0 to 9 the buffers fill the memory completely, so every shift makes two of them
    // overlap.
    const std::vector<PackBuffer> buffers = {{0, 9, 3 + seed}, {0, 9, 5}, {0, 9, 7}};
    const Packing packing = pack_buffers(buffers);
    ASSERT_EQ(fault_of(buffers, packing.offsets, packing.packed_bytes), "");
    for (size_t i = 0; i < 3; ++i)
      for (int shift : {-1, 1}) {
        auto mutant = packing.offsets;
        mutant[i] += shift;
        EXPECT_NE(fault_of(buffers, mutant, packing.packed_bytes), "");
      }
  }
}

// ---- files ----

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Packs input.12 and the eleven hard instances. The effort is limited by a number of placements,
// not by time, so that slow machines also pass.
TEST(PackCommand, HardInstancesAtTheirCapacities) {
  for (const char* name : {"input.12", "A.1048576", "B.1048576", "C.1048576", "D.1048576", "E.1048576", "F.1048576",
                           "G.1048576", "H.1048576", "I.1048576", "J.1048576", "K.1048576"}) {
    const std::string path = std::string("tests/data/minimalloc/") + name + ".csv";
    const uint64_t capacity = std::string(name) == "input.12" ? 12 : 1048576;
    const PackProblem problem = parse_pack_problem(text_of(path), path, capacity);
    const Packing packing = pack_buffers(problem.buffers, {.capacity = capacity, .nodes = 200'000});
    EXPECT_TRUE(packing.feasible) << name;
    EXPECT_LE(packing.packed_bytes, capacity) << name;
    EXPECT_EQ(fault_of(problem.buffers, packing.offsets, packing.packed_bytes), "") << name;
    EXPECT_EQ(packing.lower_bound, live_bound(problem.buffers)) << name;
  }
}

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "reprise_pack_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  size_t count() const {
    const auto entries = std::filesystem::directory_iterator(path_);
    return static_cast<size_t>(std::distance(begin(entries), end(entries)));
  }

 private:
  std::filesystem::path path_;
};

TEST(PackCommand, ReportsAndWrites) {
  Folder folder;
  const std::string out = folder.file("out.csv");
  const auto report =
      run_pack({.problem_path = "tests/data/minimalloc/input.12.csv", .capacity = 12, .output_path = out});
  EXPECT_EQ(report["feasible"], true);
  EXPECT_EQ(report["packed"], 12);
  EXPECT_EQ(report["lower_bound"], 12);
  EXPECT_GE(report["seconds"].get<double>(), 0);
  EXPECT_EQ(folder.count(), 1u) << "nothing but the answer is left";
  const std::string written = text_of(out);
  EXPECT_EQ(written.substr(0, written.find('\n')), "id,lower,upper,size,offset");
  EXPECT_EQ(std::count(written.begin(), written.end(), '\n'), 6);
  // The written file can be read again, because columns with other names are ignored.
  EXPECT_EQ(run_pack({.problem_path = out})["packed"], 12);
  EXPECT_NE(describe_pack(report, 12).find("12"), std::string::npos);
}

TEST(PackCommand, WhatDoesNotFitLeavesNoFile) {
  Folder folder;
  const auto report = run_pack(
      {.problem_path = "tests/data/minimalloc/input.12.csv", .capacity = 11, .output_path = folder.file("out.csv")});
  EXPECT_EQ(report["feasible"], false);
  EXPECT_TRUE(report["packed"].is_null());
  EXPECT_EQ(folder.count(), 0u);
}

TEST(PackCommand, AnOutputThatCannotBeWritten) {
  Folder folder;
  const PackRequest request = {.problem_path = "tests/data/minimalloc/input.12.csv",
                               .output_path = folder.file("no/out.csv")};
  EXPECT_THROW(run_pack(request), UserError);
  EXPECT_EQ(folder.count(), 0u);
}

TEST(PackCommand, ColumnsInAnyOrderAndWindowsLines) {
  const PackProblem problem =
      parse_pack_problem("\xef\xbb\xbfsize, name, upper,id,lower\r\n7,x,3,a,1\r\n\r\n8,y, 9 ,b,4\r\n", "p.csv", 0);
  ASSERT_EQ(problem.buffers.size(), 2u);
  EXPECT_EQ(problem.ids[1], "b");
  EXPECT_EQ(problem.buffers[0].lower, 1u);
  EXPECT_EQ(problem.buffers[0].upper, 3u);
  EXPECT_EQ(problem.buffers[1].size, 8u);
  EXPECT_EQ(problem.buffers[1].upper, 9u);
}

struct BadFile {
  const char* text;
  const char* names;  // text that the message must contain
};

class BadPackFiles : public testing::TestWithParam<BadFile> {};

TEST_P(BadPackFiles, GetOneClearLine) {
  try {
    parse_pack_problem(GetParam().text, "p.csv", 100);
    FAIL() << GetParam().text << " was accepted";
  } catch (const UserError& error) {
    const std::string what = error.what();
    EXPECT_EQ(what.rfind("p.csv:", 0), 0u) << what;
    EXPECT_NE(what.find(GetParam().names), std::string::npos) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    EXPECT_EQ(error.status, UserError::kBadInput);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, BadPackFiles,
    testing::Values(BadFile{"", "empty"}, BadFile{"\n\n", "empty"},
                    BadFile{"id,lower,upper\na,1,2\n", "no column \"size\""}, BadFile{"a,1,2,3\n", "no column \"id\""},
                    BadFile{"id,lower,upper,size,size\n", "\"size\" twice"},
                    BadFile{"id,lower,upper,size\na,1,2\n", "p.csv:2: has 3 fields"},
                    BadFile{"id,lower,upper,size\na,1,2,3,4\n", "p.csv:2: has 5 fields"},
                    BadFile{"id,lower,upper,size\na,5,5,3\n", "p.csv:2: lower 5 is not below upper 5"},
                    BadFile{"id,lower,upper,size\na,1,2,3\nb,6,5,3\n", "p.csv:3: lower 6"},
                    BadFile{"id,lower,upper,size\na,1,2,-3\n", "\"-3\" must be a whole number"},
                    BadFile{"id,lower,upper,size\na,x,2,3\n", "column \"lower\": \"x\""},
                    BadFile{"id,lower,upper,size\na,1,2.5,3\n", "column \"upper\": \"2.5\""},
                    BadFile{"id,lower,upper,size\na,1,,3\n", "column \"upper\": \"\""},
                    BadFile{"id,lower,upper,size\na,1,2,nan\n", "\"nan\""},
                    BadFile{"id,lower,upper,size\na,1,2,99999999999999999999\n", "too large"},
                    BadFile{"id,lower,upper,size\na,1,2,101\n", "larger than the capacity 100"},
                    BadFile{"id,lower,upper,size\na,1,2,3\na,1,2,3\n", "line 2 already"},
                    BadFile{"id,lower,upper,size\n,1,2,3\n", "\"id\" is empty"}));

TEST(PackCommand, SumsThatWouldOverflow) {
  EXPECT_THROW(parse_pack_problem("id,lower,upper,size\na,0,1,4000000000000000000\nb,0,1,4000000000000000000\n",
                                  "p.csv", 0),
               UserError);
}

TEST(PackCommand, AFileThatIsNotThere) { EXPECT_THROW(run_pack({.problem_path = "no/such.csv"}), UserError); }

}  // namespace
}  // namespace reprise
