// Tests that a training program makes no heap calls from step to step, including data, log,
// progress and evaluation. Every heap call in this binary is counted. A run of 12 steps must have
// as many as a run of 6.
#include <gtest/gtest.h>

#include <filesystem>

#include "ports/linux/linux_port.h"
#include "tests/interfaces/expect_user_error.h"
#include "tests/runtime/programs/train_program.h"
#include "tests/runtime/training_harness.h"
#include "tools/run/training/heap_calls.h"
#include "tools/run/training/program.h"

namespace reprise {
namespace {

class ZeroHeap : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!heap_calls()) GTEST_SKIP() << "the sanitizers own malloc (or this is no glibc): heap calls cannot be counted";
  }

  // Returns the number of heap calls in a run of `steps` steps.
  uint64_t calls_of(const OwnedPlan& owned, const Recipe& recipe, const char* steps) {
    const Plan plan = owned.view();
    const std::string text = canonical_recipe(recipe), log = folder_.file("log.jsonl");
    std::string words[] = {"train", "--steps", steps, "--log", log, "--threads", "2"};
    std::filesystem::remove(log);  // otherwise the run would read it and append to it
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    const uint64_t before = *heap_calls();
    EXPECT_EQ(run_training({{plan, text.c_str(), "", linux_port()}}, static_cast<int>(argv.size()), argv.data()), 0);
    return *heap_calls() - before;
  }

  void expect_no_heap_in_steps(const Recipe& recipe, const std::string& strategy, double budget_share) {
    const PlannedRun run = plan_run(recipe, strategy, budget_share);
    calls_of(run.planned.plan, run.model.recipe, "12");  // includes the calls that a process makes once
    const uint64_t six = calls_of(run.planned.plan, run.model.recipe, "6"),
                   twelve = calls_of(run.planned.plan, run.model.recipe, "12");
    EXPECT_GT(six, 0u) << "nothing is counted: this test would see nothing";
    EXPECT_EQ(six, twelve) << recipe.name << " " << strategy;
  }

  TemporaryFolder folder_;
};

TEST_F(ZeroHeap, ImagesFromAFile) {
  test::write_idx_data(folder_.path(), 24);
  const Recipe recipe =
      recipe_from(R"({"name": "images", "model": {"family": "resnet", "block": "basic", "units": [1, 1, 1], "width": 8,
    "stem": "cifar", "classes": 4, "image": [8, 8, 1]}, "data": {"kind": "idx", "path": ")" +
                  folder_.path() + R"(", "augment": {"flip": true, "crop": 2}},
    "batch": 4, "accumulate": 2, "steps": 12, "evaluate_every": 3, "clip_norm": 1.0, "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9}})");
  expect_no_heap_in_steps(recipe, "none", -1);
  expect_no_heap_in_steps(recipe, "h-revolve", 0);
  expect_no_heap_in_steps(recipe, "optimal", 0);
  Recipe narrow = recipe;
  narrow.dtype = Recipe::Dtype::kBf16;
  expect_no_heap_in_steps(narrow, "optimal", 0);
}

TEST_F(ZeroHeap, TextFromAFile) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "Some words and a number " + std::to_string(i) + ".\n";
  test::write_text(folder_.file("text.txt"), text);
  const Recipe recipe = recipe_from(
      R"({"name": "text", "model": {"family": "gpt2", "vocab_size": 257, "n_positions": 16, "n_embd": 16, "n_layer": 3,
    "n_head": 2}, "data": {"kind": "text", "path": ")" +
      folder_.file("text.txt") + R"(", "eval_path": ")" + folder_.file("text.txt") + R"("},
    "batch": 2, "steps": 12, "evaluate_every": 3, "optimizer": {"name": "adamw", "lr": 0.003}})");
  expect_no_heap_in_steps(recipe, "optimal", 0);
}

}  // namespace
}  // namespace reprise
