// Whole plans of nets as people train them, on a card that computes nothing (dry_card.h): every row of every program, recorded as bind records
// it, in an arena of addresses alone.
// Here because the table's cases are small, and what a card refuses of a launch follows from its shape: a grid of GPT-2's rows, or of a
// convolution over 224 x 224 pixels. Without nvcc the tests are skipped.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cuda/cuda_backend.h"
#include "lib/trainer.h"
#include "tests/bench/bench_recipes.h"
#include "tests/ports/dry_card.h"
#include "tests/ports/test_workers.h"
#include "tests/runtime/process.h"
#include "tests/runtime/training_harness.h"

namespace reprise::test {
namespace {

struct Net {
  const char* name;
  const char* recipe;  // its text, or a file's name
  const char* keys;    // that are another's here
  const char* strategy;
  double budget_share;  // as plan_run takes it
};
constexpr Net kNets[] = {
    {"gpt2_small", bench::kGpt2Small, R"({"batch": 64, "sequence": 1024, "dtype": "bf16", "clip_norm": 1.0})", "optimal", 0.3},
    {"gpt2_small_f32", bench::kGpt2Small, R"({"batch": 8, "sequence": 1024, "accumulate": 4})", "none", -1},
    {"resnet50", bench::kResNet50, R"({"batch": 256, "dtype": "bf16"})", "none", -1},
    {"resnet50_f32", bench::kResNet50, R"({"batch": 64})", "optimal", 0.3},
    {"llama_1b_lora", "tools/recipes/llama-3.2-1b-lora.json", R"({"batch": 4})", "optimal", 0.3},
    {"resnet990", "tests/bench/chen-990.json", "{}", "sqrt", -1},
};

Recipe recipe_of(const Net& net, CardSize size) {
  const std::string text = net.recipe[0] == '{' ? net.recipe : file_text(net.recipe);
  nlohmann::json recipe = nlohmann::json::parse(text, nullptr, true, true);
  recipe.update(nlohmann::json::parse(net.keys));
  recipe["backend"] = "cuda";
  recipe["card"] = size == CardSize::kSmall ? "small" : "large";
  for (const char* key : {"budget", "feature_map_budget"}) recipe.erase(key);
  return recipe_from(recipe.dump());
}

struct Rehearsed {
  uint64_t rows = 0, launches = 0;
};

// A program as bind records it.
void rehearse(const Trainer& trainer, const Program& program, Rehearsed& rehearsed) {
  const Recorder& recorder = trainer.backend->recorder;
  void* recording = nullptr;
  ASSERT_TRUE(recorder.begin(trainer.context).ok());
  for (const Row& row : program.rows) {
    const Status status = dispatch(trainer, program, row, false);
    ASSERT_TRUE(status.ok()) << kernel_info(row.op, row.pass).name << " in row " << &row - program.rows.data << ": " << status.message;
  }
  ASSERT_TRUE(recorder.end(trainer.context, &recording).ok());
  ASSERT_TRUE(recorder.replay(trainer.context, recording).ok());
  recorder.release(recording);
  const DryReport report = DryCard::take_report();
  EXPECT_EQ(report.fault, "");
  EXPECT_GE(report.launches + report.copies + report.fills, program.rows.count) << "a row launches something";
  EXPECT_EQ(report.replayed, report.launches + report.copies + report.fills) << "what a step replays is all that its rows asked for";
  rehearsed.rows += program.rows.count;
  rehearsed.launches += report.launches;
}

class CudaRehearsal : public ::testing::TestWithParam<Net> {};

TEST_P(CudaRehearsal, EveryRowIsLaunchedAsEveryCardTakesIt) {
  if (!DryCard::has_kernels()) GTEST_SKIP() << "no host code of nvcc's in this program: launches are not rehearsed";
  const TestWorkers one(1);
  Rehearsed rehearsed;
  for (const CardSize size : {CardSize::kSmall, CardSize::kLarge}) {
    CudaMachine machine;
    choose_cuda_machine(machine, size);
    machine.queue = DryCard::make_queue();
    const Backend backend = cuda_backend(machine);
    const PlannedRun run = plan_run(recipe_of(GetParam(), size), GetParam().strategy, GetParam().budget_share);
    const Plan plan = run.planned.plan.view();
    Trainer trainer;
    trainer.plan = &plan;
    trainer.backend = &backend;
    trainer.context.workers = &one.workers();
    trainer.context.machine = backend.machine;
    trainer.context.queue = backend.queue;
    trainer.arena = DryCard::addresses(plan.arena_bytes);
    trainer.context.scalars = reinterpret_cast<StepScalars*>(trainer.state_tensor(0).for_kernels);
    for (const Program& program : plan.programs) {
      if (program.rows.count != 0) rehearse(trainer, program, rehearsed);
    }
  }
  RecordProperty("rows", std::to_string(rehearsed.rows));
  EXPECT_GT(rehearsed.launches, 500u);
}

INSTANTIATE_TEST_SUITE_P(Nets, CudaRehearsal, ::testing::ValuesIn(kNets), [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace reprise::test
