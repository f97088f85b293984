// Judges every plain access of CUDA's kernels to global and shared memory under the fibres
// (cuda_fibre_access.h). Correct kernels must pass. Every planted fault must be reported with both
// source lines, even if results do not change.
//
// Fibres run one at a time, so a missing barrier, wait or fence need not change a result. The PTX
// machine also judges accesses, but without source lines. This file and cuda_global_kernels.cu
// contain planted faults. In addition, each barrier and wait in cuda/ is disabled in turn, except
// those in kSpare. At least one case that reaches it must then fail.
#include "tests/ports/fibres/cuda_fibre.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/ports/cards/cuda_global_runs.h"
#include "tests/ports/chosen_cases.h"
#include "tests/ports/fibres/code_places.h"
#include "tests/ports/fibres/cuda_fibre_access.h"

namespace reprise::test {
namespace {

using fibre::AccessJudge;
using fibre::Fault;
using fibre::Report;
using fibre::Site;
using fibre::Sites;

class Accesses : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "kernels do not announce their accesses where the address sanitizer does its own";
#endif
    fibre::set_order(1);
  }
  ~Accesses() override {
    fibre::Device::instance().set_sites(nullptr);
    EXPECT_EQ(fibre::take_report().text, "");
  }
};

// Returns "PATH:LINE" for the first line of a file that contains `text`, or for the line `before`
// lines above it.
std::string line_with(const std::string& path, const std::string& text, uint32_t before = 0) {
  std::ifstream source(path);
  std::string line;
  for (uint32_t number = 1; std::getline(source, line); ++number) {
    if (line.find(text) != std::string::npos) return path + ":" + std::to_string(number - before);
  }
  ADD_FAILURE() << "no line of " << path << " has " << text;
  return "";
}

constexpr uint64_t kSeeds = 8;

// ---- planted faults of shared memory, of barriers and of shuffles ----

__global__ void reverse_block(float* out, bool right) {
  REPRISE_SHARED(float, tile, 64);
  tile[threadIdx.x] = 0;  // so that no byte is unwritten
  __syncthreads();
  tile[threadIdx.x] = static_cast<float>(threadIdx.x);  // 1 put
  if (right) __syncthreads();
  out[threadIdx.x] = tile[63 - threadIdx.x];  // 1 get
}
__global__ void sum_twice(float* out, bool right) {
  REPRISE_SHARED(float, tile, 64);
  float sum = 0;
  for (uint32_t turn = 0; turn < 2; ++turn) {
    tile[threadIdx.x] = static_cast<float>(turn);  // 2 put
    __syncthreads();
    for (uint32_t i = 0; i < 64; ++i) sum += tile[i];  // 2 get
    if (right) __syncthreads();
  }
  out[threadIdx.x] = sum;
}
__global__ void reverse_warp(float* out, bool right) {
  REPRISE_SHARED(float, tile, 64);
  tile[threadIdx.x] = 0;
  __syncthreads();
  tile[threadIdx.x] = static_cast<float>(threadIdx.x);  // 3 put
  if (right) __syncwarp();
  out[threadIdx.x] = tile[threadIdx.x ^ 31u];  // 3 get
}
__global__ void meet_by_half(float* out, bool right) {
  if (right || threadIdx.x < 32) __syncthreads();  // 4 meet
  out[threadIdx.x] = 1;
}
__global__ void shuffle_of_others(float* out, bool right) {
  const uint32_t mask = right || threadIdx.x % 32 != 7 ? 0xffffffffu : 0xffffff7fu;
  out[threadIdx.x] = __shfl_xor_sync(mask, 1.0f, 1);  // 5 meet
}

TEST_F(Accesses, OfSharedMemoryAreNamedWithBothLines) {
  const std::string source = "tests/ports/cards/cuda_access_test.cpp";
  const auto race = [&](const std::string& number) {
    const std::string either =
        "(" + line_with(source, "  // " + number + " put") + "|" + line_with(source, "  // " + number + " get") + ")";
    return "^block 0,0: thread \\d+ (reads|writes) tile\\[\\d+\\] at " + either +
           ", (read|written) by (others and )?thread \\d+ at " + either + " with no barrier since$";
  };
  const auto line_of = [&](const char* what) { return line_with(source, what).substr(source.size() + 1); };
  struct Planted {
    void (*kernel)(float*, bool);
    Fault fault;
    std::string says;
  };
  const Planted planted[] = {
      {reverse_block, Fault::kRace, race("1")},
      {sum_twice, Fault::kRace, race("2")},
      {reverse_warp, Fault::kRace, race("3")},
      {meet_by_half, Fault::kDivergence,
       "32 threads wait in __syncthreads at line " + line_of("  // 4 meet") + " of " + source + ", 32 have exited$"},
      {shuffle_of_others, Fault::kShuffle, "the mask leaves out its caller, at line " + line_of("  // 5 meet") + "$"},
  };
  std::vector<float> out(64);
  const auto report_of = [&](const Planted& each, bool right) {
    REPRISE_LAUNCH(each.kernel, 1, 64, nullptr, out.data(), right);
    (void)cudaDeviceSynchronize();
    (void)cudaGetLastError();
    return fibre::take_report();
  };
  std::vector<std::string> texts;
  const AccessJudge judge;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    fibre::set_order(seed);
    for (const Planted& each : planted) {
      EXPECT_EQ(report_of(each, true).text, "");
      const Report report = report_of(each, false);
      EXPECT_EQ(report.fault, each.fault);
      texts.push_back(report.text);
    }
  }
  const std::vector<std::string> lines = fibre::with_lines(texts);
  for (size_t i = 0; i < lines.size(); ++i)
    EXPECT_TRUE(matches(lines[i], planted[i % std::size(planted)].says)) << lines[i];
}

// ---- planted faults of global memory ----

const std::string kSource = "tests/ports/cards/cuda_global_kernels.cu";

TEST_F(Accesses, WhatBlocksDoNotHandOverIsNamedWithBothLines) {
  const std::string put = line_with(kSource,
                                    "if (has_column) args.partials[uint64_t{blockIdx.x} * args.columns + c] = sum;"),
                    get = line_with(kSource, "total += args.partials["),
                    add = line_with(kSource, "args.total[c] += sum;"),
                    ahead = line_with(kSource, "args.partials[uint64_t{blockIdx.x - 1}"),
                    link = line_with(kSource, "= sum + before;");
  const auto race = [](const std::string& tensor, const std::string& here, const std::string& there) {
    return "^block [0-2],0: thread \\d+ of .*total_by_last_block<.* at " + here + ": byte \\d+ of " + tensor +
           " is (read|written) and was (read|written) at " + there +
           " by thread \\d+ of block [0-2],0,0, and nothing hands it over$";
  };
  struct Planted {
    TotalKind kind;
    std::string says;
  };
  const Planted planted[] = {
      {TotalKind::kNoFence, race("partials", get, put)},
      {TotalKind::kFenceTooEarly, race("partials", get, put)},
      {TotalKind::kNoBarrier, race("partials", get, put)},
      {TotalKind::kNotAcquired, race("partials", get, put)},
      {TotalKind::kLostUpdate, race("total", add, add)},
      {TotalKind::kReadAhead, race("partials", "(" + ahead + "|" + link + ")", "(" + ahead + "|" + link + ")")},
  };
  std::vector<std::string> texts;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    fibre::set_order(seed);
    const AccessJudge judge;
    EXPECT_EQ(Total(TotalKind::kRight).report.text, "");
    EXPECT_GT(judge.judged(), 0u);
    for (const Planted& each : planted) {
      const Report report = Total(each.kind).report;
      EXPECT_EQ(report.fault, Fault::kRace) << report.text;
      texts.push_back(report.text);
    }
  }
  const std::vector<std::string> lines = fibre::with_lines(texts);
  for (size_t i = 0; i < lines.size(); ++i)
    EXPECT_TRUE(matches(lines[i], planted[i % std::size(planted)].says)) << lines[i];
}

TEST_F(Accesses, RowsPastTheEdgeAreNamedWithTheLine) {
  const AccessJudge judge;
  EXPECT_EQ(TileSums(TileSumKind::kRight).report.text, "");
  EXPECT_EQ(TileSums(TileSumKind::kMisaligned, 72).report.text, "");  // all packs are aligned
  const auto expect = [&](TileSumKind kind, Fault fault, const std::string& line, const std::string& what,
                          uint32_t columns = kColumns) {
    const Report report = TileSums(kind, columns).report;
    EXPECT_EQ(report.fault, fault);
    EXPECT_TRUE(matches(fibre::with_lines(report.text), line + ".*: " + what)) << fibre::with_lines(report.text);
  };
  const std::string past = "4 bytes are read \\d+ bytes past the end of x, which has 37008$";
  expect(TileSumKind::kOneRowTooMany, Fault::kOutOfBounds, line_with(kSource, "kOneRowTooMany ? row <= rows"), past);
  expect(TileSumKind::kMaskedRow, Fault::kOutOfBounds, line_with(kSource, "const float value = x[row * columns + c];"),
         past);
  expect(TileSumKind::kInputWritten, Fault::kOutOfBounds, line_with(kSource, "const_cast<float*>"),
         "4 bytes are written at byte \\d+ of x, an input$");
  expect(TileSumKind::kMisaligned, Fault::kMisaligned,
         "cuda/gemm/pack.h:\\d+ of " + line_with(kSource, "load_pack<4>("),
         "byte \\d+ of x, not aligned to 16$", 70);
}

// ---- the correct kernels, and each of their barriers and waits disabled ----

struct JudgedRun {
  Report report;
  Sites sites;
  uint64_t judged = 0;
};
JudgedRun run_judged(const Judged& judged, std::optional<Site> left_out = {}) {
  JudgedRun run;
  run.sites.left_out = left_out;
  AccessJudge judge;
  fibre::Device::instance().set_sites(&run.sites);
  (void)run_here(judged.c, make_data(judged.c), *judged.backend);
  fibre::Device::instance().set_sites(nullptr);
  (void)cudaGetLastError();
  run.report = fibre::take_report();
  run.judged = judge.judged();
  return run;
}

// Returns a case of the embedding's gradient with many positions and few words. The lists of
// positions that a block makes are full before the last position.
KernelCase many_hits() {
  CaseTable table(CaseUse::kTest);
  using A = EmbeddingBackward;
  const auto tokens = shaped({1, 1300}, DType::kI32);
  table.add<A>("b1_t1300_c4_v5", {{A::kDtable, shaped({5, 4})}, {A::kTokens, tokens}, {A::kDy, shaped({1, 1300, 4})}},
               EmbeddingAttribute{});
  return table.cases()[0];
}

// For each barrier or wait, the cases that reach it, small cases first.
using Comers = std::map<Site, std::vector<Judged>>;

Comers judge_right_kernels() {
  Comers comers;
  size_t of = 0;
  std::vector<Judged> cases = chosen_cases(1, of);
  cases.push_back({&kBackend, many_hits()});
  cases.push_back({&kBackend, case_of("adamw_update__n67_decay_f32_with_dynamic8")});
  for (const Judged& each : cases) {
    const JudgedRun run = run_judged(each);
    EXPECT_EQ(fibre::with_lines(run.report.text), "") << each.c.id;
    EXPECT_GT(run.judged, 0u) << each.c.id << " announces no access";
    for (const Site& site : run.sites.met) comers[site].push_back(each);
  }
  return comers;
}

// Runs the cases without the barrier or wait `site`, and returns the first fault; "" if there is
// none. Runs all cases a second time in a grid of one block, which loops over all work.
std::string fault_without(const Site& site, const std::vector<Judged>& cases) {
  for (const bool in_turns : {false, true}) {
    fibre::Device::instance().set_most_blocks(in_turns ? 1 : ~0u);
    for (const Judged& each : cases) {
      if (in_turns) {
        EXPECT_EQ(fibre::with_lines(run_judged(each).report.text), "") << each.c.id;
      }
      const std::string text = run_judged(each, site).report.text;
      if (!text.empty()) return fibre::Device::instance().set_most_blocks(~0u), text;
    }
  }
  fibre::Device::instance().set_most_blocks(~0u);
  return "";
}

// A barrier that could be omitted today: its file, and the text of the line after it.
struct Spare {
  const char *file, *behind;
};
constexpr Spare kSpare[] = {
    {"cuda/data_fault.h", "  return smallest;"},           // would be needed if the kernel used the array a second time
    // Not needed, because each thread writes the column that it has read.
    {"cuda/gemm/tile_product.h", "    if (pass == 1) break;"},
    // Not needed, because the barriers of find_hits precede the next write to the lists.
    {"cuda/pointwise/embedding.cu", "    overwrite = false;"},
};
bool is_spare(const Site& site) {
  return std::any_of(std::begin(kSpare), std::end(kSpare),
                     [&](const Spare& each) { return site.text().ends_with(line_with(each.file, each.behind, 1)); });
}

// Matches the text of a disabled site and of the fault that this causes. The fault has the lines of
// two accesses, or is about an unwritten byte, or about a thread that exits with copies in flight.
const std::string kFaultOfASite =
    "^(__sync|wait_copies).* at (./)?cuda/.*: block \\d+,\\d+: .*("
    " at (cuda/.*:\\d+).* at cuda/.*:\\d+|which no thread has written|exits while its copies are in flight)";

TEST_F(Accesses, OfEveryKernelAreInOrderAndEveryBarrierAndWaitIsNeeded) {
  const Comers comers = judge_right_kernels();
  std::vector<std::string> texts;
  uint32_t spare = 0;
  for (const auto& [site, cases] : comers) {
    if (is_spare(site)) {
      EXPECT_EQ(fault_without(site, {cases[0]}), "") << site.text() << " is needed now";
      ++spare;
      continue;
    }
    texts.push_back(site.text() + ": " + fault_without(site, cases));
  }
  EXPECT_EQ(spare, std::size(kSpare));
  for (const std::string& text : fibre::with_lines(texts)) EXPECT_TRUE(matches(text, kFaultOfASite)) << text;
  RecordProperty("sites", std::to_string(texts.size()));
}

}  // namespace
}  // namespace reprise::test
