// Compares with PyTorch, by the goldens of tests/parity and without PyTorch. Six steps run with the
// same weights and data, under two schedules. Each loss, each evaluation, and the final norm of
// every tensor must be within the golden's tolerance. It is ten times the difference of PyTorch's
// own results in f32 and f64, and at least 1e-5 relative.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "ports/linux/linux_port.h"
#include "tests/runtime/training_harness.h"
#include "tools/files/io/output_file.h"
#include "tools/run/snapshots/initial_weights.h"
#include "tools/run/snapshots/state_tensors.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::vector<std::string> golden_cases() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator("tests/golden/parity")) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

class Parity : public ::testing::TestWithParam<std::string> {
 protected:
  void expect_near(double actual, double expected, double tolerance, const std::string& what) {
    EXPECT_LE(std::abs(actual - expected), tolerance * std::abs(expected))
        << GetParam() << " " << what << ": " << actual << " against " << expected;
  }

  void expect_norms(const Trainer& trainer, const json& golden) {
    size_t compared = 0;
    for (uint32_t i = 0; i < trainer.plan->state.count; ++i) {
      const StateTensor& state = trainer.plan->state[i];
      if (!golden.at("final_norms_f64").contains(state.name) || state.tensor.dtype != DType::kF32) continue;
      double sum = 0;
      for (const float value : floats_of(trainer, i)) sum += value * static_cast<double>(value);
      const double f32 = golden.at("final_norms_f32").at(state.name), f64 = golden.at("final_norms_f64").at(state.name);
      expect_near(std::sqrt(sum), f64, std::max(1e-5, 10 * std::abs(f32 - f64) / f64),
                  std::string("norm of ") + state.name);
      ++compared;
    }
    EXPECT_GT(compared, 10u);
  }
};

TEST_P(Parity, SixSteps) {
  const std::string folder = "tests/golden/parity/" + GetParam();
  const json golden = json::parse(read_file(folder + "/golden.json"));
  const Recipe recipe = read_recipe(folder + "/recipe.json");
  for (const auto& [strategy, share] : {std::pair<const char*, double>{"none", -1}, {"optimal", 0.0}}) {
    const PlannedRun run = plan_run(recipe, strategy, share);
    const Plan plan = run.planned.plan.view();
    const TestArena arena(plan.arena_bytes);
    const Workers alone = {.stack_bytes = 1 << 20};
    Trainer trainer;
    ASSERT_TRUE(bind_plan(plan, test::test_backend(), alone, arena.get(), trainer).ok());
    read_state(trainer, *open_weights(folder + "/W.safetensors"), StatePart::kModel);
    const auto training = open_dataset(recipe, Split::kTraining), evaluation = open_dataset(recipe, Split::kEvaluation);
    size_t next_evaluation = 0;
    for (size_t s = 0; s < golden.at("loss_f64").size(); ++s) {
      StepReport report;
      ASSERT_TRUE(train_step(trainer, source_of(*training), report).ok());
      const std::string what = std::string(strategy) + " step " + std::to_string(s + 1);
      expect_near(report.loss, golden.at("loss_f64")[s], golden.at("tolerance")[s], what);
      const double norm_f64 = golden.at("grad_norm_f64")[s], norm_f32 = golden.at("grad_norm_f32")[s];
      expect_near(report.gradient_norm, norm_f64, std::max(1e-5, 10 * std::abs(norm_f32 - norm_f64) / norm_f64),
                  what + " gradient norm");
      if (next_evaluation == golden.at("evaluations").size() ||
          golden.at("evaluations")[next_evaluation].at("step") != s + 1)
        continue;
      const json& expected = golden.at("evaluations")[next_evaluation++];
      EvaluationReport evaluated;
      ASSERT_TRUE(evaluate(trainer, source_of(*evaluation), evaluation->micro_batches(), evaluated).ok());
      expect_near(evaluated.loss, expected.at("eval_loss_f64"), expected.at("tolerance"), what + " evaluation");
      EXPECT_NEAR(static_cast<double>(evaluated.correct) / static_cast<double>(evaluated.labelled),
                  expected.at("accuracy"), 1e-9)
          << what;
    }
    EXPECT_EQ(next_evaluation, golden.at("evaluations").size());
    expect_norms(trainer, golden);
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, Parity, ::testing::ValuesIn(golden_cases()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace reprise
