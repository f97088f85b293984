// Runs the compiler on plans. A good plan must compile. A faulty plan must stop the compiler with a
// message that contains fault, program, row and slot, because that message is all that a user sees
// (DESIGN 3). The tests do not depend on a compiler's wording. They look only for words of the
// library: PlanIsSafe<fault, program, row, slot>, the name of the function that found the fault, or
// the text of an assertion.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "lib/cpu/cpu_rules.h"
#include "tests/judges/plan_builder.h"
#include "tools/plan/planning/planner.h"
#include "tools/plan/recipes/recipe.h"
#include "tools/plan/writing/plan_header.h"

namespace reprise::testing {
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

// Returns a plan with the rows y = relu(x), z = y and z = z + y, and slots x, y, z. The learning
// rate has two milestones, in an array outside the plan.
OwnedPlan good_plan() {
  PlanBuilder b;
  b.begin(ProgramId::kMicroFirst);
  const Ref x = b.input({64}), y = b.slot({64}), z = b.slot({64});
  b.row(Op::kRelu, Pass::kForward, {y, x});
  b.row(Op::kCopy, Pass::kForward, {z, y});
  b.row(Op::kAdd, Pass::kForward, {z, z, y});
  b.end();
  OwnedPlan plan = b.finish();
  plan.programs[0].slot_names = {"x", "y", "z"};
  plan.milestones = {3000, 6000};
  return plan;
}

constexpr const char* kRecipe = "{\"batch\": 4}";

// Returns the plan.h that `reprise plan` would write.
std::string header_of(OwnedPlan plan) {
  plan.recipe_hash = text_hash(kRecipe);
  return plan_header({plan, kCpuRules, kRecipe, "a plan of three rows"});
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// Runs each test with g++ and clang++, if they are installed, and with $CXX (c++ if $CXX is not
// set).
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

  Outcome compile(const std::string& header, const std::string& options = "") {
    std::ofstream(directory_ / "plan.h") << header;
    std::ofstream(directory_ / "main.cpp") << "#include \"plan.h\"\nint main() {}\n";
    const std::string root = std::filesystem::current_path().string();
    return run(compiler_ + " -std=c++20 -fsyntax-only " + options + " -I'" + root + "' '" +
               (directory_ / "main.cpp").string() + "'");
  }

  // Requires that the compiler reports `fault`, with or without the prefix reprise::, and `place`:
  // program, row and slot as numbers.
  void expect_fault(const OwnedPlan& plan, const std::string& fault, const std::string& place) {
    const Outcome outcome = compile(header_of(plan));
    EXPECT_NE(outcome.status, 0);
    const size_t at = outcome.output.find("PlanIsSafe<reprise::Fault::" + fault + ", " + place + ">");
    const size_t short_at = outcome.output.find("PlanIsSafe<Fault::" + fault + ", " + place + ">");
    EXPECT_TRUE(at != std::string::npos || short_at != std::string::npos) << outcome.output;
  }

  std::string compiler_;
  std::filesystem::path directory_;
};

TEST_P(ProofFailure, AGoodPlanCompiles) {
  const Outcome outcome = compile(header_of(good_plan()));
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}

TEST_P(ProofFailure, OverlapNamesItsPlace) {
  OwnedPlan plan = good_plan();
  plan.programs[0].slots[2].tensor.offset = plan.programs[0].slots[1].tensor.offset;
  expect_fault(plan, "kOverlap", "0, 1, 2");
}

TEST_P(ProofFailure, ADeadSlotNamesItsPlace) {
  OwnedPlan plan = good_plan();
  plan.programs[0].arguments.back() = 0;
  expect_fault(plan, "kNotLive", "0, 2, 0");
}

TEST_P(ProofFailure, AMisalignedSlotHasNoRow) {
  OwnedPlan plan = good_plan();
  plan.programs[0].slots[2].tensor.offset = 4;
  expect_fault(plan, "kMisaligned", "0, " + std::to_string(~0u) + ", 2");
}

// Two streamed weights use the same memory at different times. The first is used in row 2, and,
// loaded again into another slot, in row 8.
OwnedPlan streaming_plan() {
  PlanBuilder b;
  const Ref w1 = b.streamed("w1", {64}), w2 = b.streamed("w2", {64});
  b.begin(ProgramId::kMicroFirst);
  const Ref in = b.input({64}), x = b.slot({64}), y = b.slot({64}), z = b.slot({64});
  const Ref loaded[] = {b.slot({64}), b.slot({64}), b.slot({64})}, from[] = {w1, w2, w1}, to[] = {x, y, z},
            with[] = {in, x, in};
  for (int n = 0; n < 3; ++n) {
    b.row(Op::kLoad, Pass::kStart, {loaded[n], from[n]});
    b.row(Op::kLoad, Pass::kWait, {loaded[n], from[n]});
    b.row(Op::kAdd, Pass::kForward, {to[n], loaded[n], with[n]});
  }
  b.row(Op::kAdd, Pass::kForward, {z, z, y});
  b.end();
  OwnedPlan plan = b.finish();
  plan.programs[0].slot_names.assign(plan.programs[0].slots.size(), "a slot");
  return plan;
}

// Another library that streams weights had this fault: the backward reads the slot of the forward's
// load, whose memory by then contains the next weight.
TEST_P(ProofFailure, AReadAfterTheSlotsNextLoadNamesItsPlace) {
  OwnedPlan plan = streaming_plan();
  EXPECT_EQ(compile(header_of(plan)).status, 0);
  OwnedProgram& p = plan.programs[0];
  const Ref first = p.arguments[p.rows[0].first_argument], second = p.arguments[p.rows[3].first_argument];
  ASSERT_EQ(p.slots[first].tensor.offset, p.slots[second].tensor.offset);
  p.arguments[p.rows[8].first_argument + 1] = first;
  expect_fault(plan, "kNotLive", "0, 8, " + std::to_string(first));
  p.slots[first].end_row = 9;
  expect_fault(plan, "kOverlap", "0, 3, " + std::to_string(second));
}

// Users may compile the proof with sanitizers, which must not change its result. The plan trains a
// small ResNet with AdamW and a norm clip.
TEST_P(ProofFailure, APlanCompilesUnderTheSanitizers) {
  const SolvedModel model = solve_model(parse_recipe(
      R"({"model": {"family": "resnet", "units": [1, 1, 1], "width": 4, "image": [8, 8, 1]}, "batch": 2, "clip_norm": 1, "optimizer": {"name": "adamw"}})",
      "net.json", "/"));
  const Outcome outcome = compile(header_of(plan_model(model, request_of(model)).plan), "-fsanitize=address,undefined");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}

// The proof reads past the end of the milestones' array. The compiler refuses this in a constant
// expression.
TEST_P(ProofFailure, MilestonesPastTheirArrayDoNotCompile) {
  const Outcome outcome = compile(replaced(header_of(good_plan()), "{kMilestones, 2}", "{kMilestones, 4000000}"));
  EXPECT_NE(outcome.status, 0);
  EXPECT_NE(outcome.output.find("learning_rate_makes_sense"), std::string::npos) << outcome.output;
}

TEST_P(ProofFailure, AChangedRecipeBesideThePlanDoesNotCompile) {
  const Outcome outcome = compile(replaced(header_of(good_plan()), "\\\"batch\\\": 4", "\\\"batch\\\": 44"));
  EXPECT_NE(outcome.status, 0);
  EXPECT_NE(outcome.output.find("the recipe above is not the one that this plan was made from"), std::string::npos)
      << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(Compilers, ProofFailure, ::testing::Values("$CXX", "g++", "clang++"), [](const auto& info) {
  return info.param == "$CXX"  ? std::string("chosen")
         : info.param == "g++" ? std::string("gxx")
                               : std::string("clangxx");
});

}  // namespace
}  // namespace reprise::testing
