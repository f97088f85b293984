// Runs the compiler on plans: a good one must compile, a faulty one must stop it with fault, program, row and slot in its message.
// Here because that message is all a person sees when a plan is wrong at build time (DESIGN 3).
// It must not rely on the wording of any compiler, only on the name PlanIsSafe<fault, program, row, slot>.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace {

struct Outcome {
  int status = -1;
  std::string output;
};

Outcome run(const std::string& command) {
  Outcome outcome;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> buffer;
  for (size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) outcome.output.append(buffer.data(), n);
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

// y = relu(x); z = y; z = z + y. `third` is where slot 2 is put, `reader` what the last row adds.
std::string plan_header(const std::string& third_offset, const std::string& reader) {
  return R"(#pragma once
#include "lib/check.h"
namespace reprise {
constexpr uint64_t no_scratch(Op, Pass, const Tensor* const*) { return 0; }
inline constexpr StateTensor kState[] = {{.tensor = {0, 256, DType::kU8, 1, {96, 1, 1, 1}}, .kind = StateKind::kScalars, .name = "scalars"}};
inline constexpr Row kRows[] = {{.op = Op::kRelu, .pass = Pass::kForward, .first_argument = 0},
                                {.op = Op::kCopy, .pass = Pass::kForward, .first_argument = 2},
                                {.op = Op::kAdd, .pass = Pass::kForward, .first_argument = 4}};
inline constexpr Ref kArguments[] = {1, 0, 2, 1, 2, 2, )" + reader + R"(};
inline constexpr Slot kSlots[] = {{.tensor = {0, 256, DType::kF32, 1, {64, 1, 1, 1}}, .first_row = 0, .end_row = 1},
                                  {.tensor = {256, 256, DType::kF32, 1, {64, 1, 1, 1}}, .first_row = 0, .end_row = 3, .below = 0},
                                  {.tensor = {)" + third_offset + R"(, 256, DType::kF32, 1, {64, 1, 1, 1}}, .first_row = 1, .end_row = 3}};
constexpr Plan make_plan() {
  Plan plan;
  plan.state = {kState, 1};
  plan.programs[0] = {{kRows, 3}, {kArguments, 7}, {kSlots, 3}, 512, 0, kNoSlot};
  plan.state_bytes = 256;
  plan.arena_bytes = 768;
  return plan;
}
inline constexpr Plan kPlan = make_plan();
inline constexpr Verdict kVerdict = prove<4>(kPlan, no_scratch);
static_assert(PlanIsSafe<kVerdict.fault, kVerdict.program, kVerdict.row, kVerdict.slot>::value);
}  // namespace reprise
)";
}

// The compilers to ask: $CXX where it is set, and those that this library promises to work with.
class ProofFailure : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    compiler_ = GetParam();
    if (compiler_ == "$CXX") {
      const char* chosen = std::getenv("CXX");
      compiler_ = chosen != nullptr && *chosen != 0 ? chosen : "c++";
      ASSERT_EQ(run(compiler_ + " --version").status, 0) << "no compiler: set CXX";
    } else if (run(compiler_ + " --version").status != 0) {
      GTEST_SKIP() << compiler_ << " is not installed: its messages were not looked at";
    }
    directory_ = std::filesystem::temp_directory_path() / ("reprise-proof-" + std::to_string(getpid()));
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override {
    if (!directory_.empty()) std::filesystem::remove_all(directory_);
  }

  Outcome compile(const std::string& header) {
    std::ofstream(directory_ / "plan.h") << header;
    std::ofstream(directory_ / "main.cpp") << "#include \"plan.h\"\nint main() {}\n";
    const std::string root = std::filesystem::current_path().string();
    return run(compiler_ + " -std=c++20 -fsyntax-only -I'" + root + "' '" + (directory_ / "main.cpp").string() + "'");
  }

  // The fault's name may be qualified, or be a number, but the place must be there as numbers.
  void expect_fault(const std::string& header, const std::string& fault, const std::string& place) {
    const Outcome outcome = compile(header);
    EXPECT_NE(outcome.status, 0);
    const size_t at = outcome.output.find("PlanIsSafe<reprise::Fault::" + fault + ", " + place + ">");
    const size_t short_at = outcome.output.find("PlanIsSafe<Fault::" + fault + ", " + place + ">");
    EXPECT_TRUE(at != std::string::npos || short_at != std::string::npos) << outcome.output;
  }

  std::string compiler_;
  std::filesystem::path directory_;
};

TEST_P(ProofFailure, AGoodPlanCompiles) {
  const Outcome outcome = compile(plan_header("0", "1"));
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}

TEST_P(ProofFailure, OverlapNamesItsPlace) { expect_fault(plan_header("256", "1"), "kOverlap", "0, 1, 2"); }

TEST_P(ProofFailure, ADeadSlotNamesItsPlace) { expect_fault(plan_header("0", "0"), "kNotLive", "0, 2, 0"); }

TEST_P(ProofFailure, AMisalignedSlotHasNoRow) {
  expect_fault(plan_header("4", "1"), "kMisaligned", "0, " + std::to_string(~0u) + ", 2");
}

INSTANTIATE_TEST_SUITE_P(Compilers, ProofFailure, ::testing::Values("$CXX", "g++", "clang++"), [](const auto& info) {
  return info.param == "$CXX" ? std::string("chosen") : info.param == "g++" ? std::string("gxx") : std::string("clangxx");
});

}  // namespace
