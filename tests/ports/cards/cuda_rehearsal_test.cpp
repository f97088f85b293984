// Runs whole plans of realistic nets on a card that computes nothing (dry_card.h). Every row of
// every program is recorded in the way of bind, in an arena that has addresses but no memory. The
// cases of the table are too small to reach a card's limits on launches. GPT-2, or a convolution
// over 224 x 224 pixels, has larger grids. Without nvcc the tests are skipped.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cuda/cuda_backend.h"
#include "lib/trainer.h"
#include "tests/bench/bench_recipes.h"
#include "tests/interfaces/expect_user_error.h"
#include "tests/ports/cards/dry_card.h"
#include "tests/ports/test_workers.h"
#include "tests/runtime/programs/process.h"
#include "tests/runtime/training_harness.h"
#include "tools/run/nets/import_net.h"

namespace reprise::test {
namespace {

struct Net {
  const char* name;
  const char* recipe;  // text of the recipe, or path of its file
  const char* keys;    // JSON object whose keys replace those of the recipe
  const char* strategy;
  double budget_share;  // position of the budget as in plan_run; -1: no budget
};
constexpr Net kNets[] = {
    {"gpt2_small", bench::kGpt2Small, R"({"batch": 64, "sequence": 1024, "dtype": "bf16", "clip_norm": 1.0})",
     "optimal", 0.3},
    {"gpt2_small_f32", bench::kGpt2Small, R"({"batch": 8, "sequence": 1024, "accumulate": 4})", "none", -1},
    {"resnet50", bench::kResNet50, R"({"batch": 256, "dtype": "bf16"})", "none", -1},
    {"resnet50_f32", bench::kResNet50, R"({"batch": 64})", "optimal", 0.3},
    {"llama_1b_lora", "tools/recipes/llama-3.2-1b-lora.json", R"({"batch": 4})", "optimal", 0.3},
    {"gpt2_small_to_the_host", bench::kGpt2Small,
     R"({"batch": 8, "sequence": 1024, "optimizer": {"name": "adamw", "offload": true}, "schedule": {"strategy": "every-k", "k": 1, "host": "8GiB"}})",
     "every-k", -1},
    {"resnet990", "tests/bench/chen-990.json", "{}", "sqrt", -1},
};

Recipe recipe_of(const Net& net) {
  const std::string text = net.recipe[0] == '{' ? net.recipe : file_text(net.recipe);
  nlohmann::json recipe = nlohmann::json::parse(text, nullptr, true, true);
  recipe.update(nlohmann::json::parse(net.keys));
  for (const char* key : {"budget", "feature_map_budget"}) recipe.erase(key);
  return recipe_from(recipe.dump());
}

struct Rehearsed {
  uint64_t rows = 0, launches = 0;
};

// Records a program as bind does, and replays it. Expects that every row except copies, moves and
// waits requests work, and that the replay repeats all work.
void rehearse(const Trainer& trainer, const Program& program, Rehearsed& rehearsed) {
  const Recorder& recorder = trainer.backend->recorder;
  void* recording = nullptr;
  uint64_t working_rows = 0;  // number of rows that must request work
  ASSERT_TRUE(recorder.begin(trainer.context).ok());
  for (const Row& row : program.rows) {
    const KernelInfo& info = kernel_info(row.op, row.pass);
    const Status status = dispatch(trainer, program, row, false);
    working_rows += !info.copies && !info.moves && !(info.asynchronous() && row.pass == Pass::kWait);
    ASSERT_TRUE(status.ok()) << info.name << " in row " << &row - program.rows.data << ": " << status.message;
  }
  ASSERT_TRUE(recorder.end(trainer.context, &recording).ok());
  ASSERT_TRUE(recorder.replay(trainer.context, recording).ok());
  recorder.release(recording);
  const DryReport report = DryCard::take_report();
  EXPECT_EQ(report.fault, "");
  EXPECT_GE(report.launches + report.copies + report.fills, working_rows) << "a row launches something";
  EXPECT_EQ(report.replayed, report.launches + report.copies + report.fills)
      << "what a step replays is all that its rows asked for";
  rehearsed.rows += program.rows.count;
  rehearsed.launches += report.launches;
}

// Records all programs of the recipe's plan, for both sizes of card.
Rehearsed rehearse_recipe(Recipe recipe, const char* strategy, double budget_share) {
  const TestWorkers one(1);
  Rehearsed rehearsed;
  recipe.backend = Recipe::BackendChoice::kCuda;
  for (const CardSize size : {CardSize::kSmall, CardSize::kLarge}) {
    CudaMachine machine;
    choose_cuda_machine(machine, size);
    machine.queue = DryCard::make_queue();
    CudaCopies copies = {.queue = DryCard::make_copy_queue(), .asked = DryCard::make_event()};
    for (void*& event : copies.copied) event = DryCard::make_event();
    machine.copies = &copies;
    const Backend backend = cuda_backend(machine);
    recipe.card = size == CardSize::kSmall ? Recipe::CardSize::kSmall : Recipe::CardSize::kLarge;
    const PlannedRun run = plan_run(recipe, strategy, budget_share);
    const Plan plan = run.planned.plan.view();
    Trainer trainer;
    trainer.plan = &plan;
    trainer.backend = &backend;
    trainer.context.workers = &one.workers();
    trainer.context.machine = backend.machine;
    trainer.context.queue = backend.queue;
    trainer.arena = DryCard::addresses(plan.arena_bytes + (spills_to(plan, SpillLevel::kHost) ? plan.spill_bytes : 0));
    trainer.host_memory = {trainer.arena.base.for_kernels + plan.arena_bytes, plan.spill_bytes};
    EXPECT_EQ(spills_to(plan, SpillLevel::kHost), recipe.schedule.host_bytes > 0);
    trainer.context.scalars = reinterpret_cast<StepScalars*>(trainer.state_tensor(0).for_kernels);
    for (const Program& program : plan.programs) {
      if (program.rows.count != 0) rehearse(trainer, program, rehearsed);
    }
  }
  return rehearsed;
}

constexpr const char* kSkipped = "no host code of nvcc's in this program: launches are not rehearsed";

class CudaRehearsal : public ::testing::TestWithParam<Net> {};

TEST_P(CudaRehearsal, EveryRowIsLaunchedAsEveryCardTakesIt) {
  if (!DryCard::has_kernels()) GTEST_SKIP() << kSkipped;
  const Rehearsed rehearsed = rehearse_recipe(recipe_of(GetParam()), GetParam().strategy, GetParam().budget_share);
  RecordProperty("rows", std::to_string(rehearsed.rows));
  EXPECT_GT(rehearsed.launches, 500u);
}

// Records the imported nets of tests/golden/nets, with batches larger than the maximum number of
// blocks of a grid in y.
TEST(CudaRehearsalOfImports, EveryRowIsLaunchedAsEveryCardTakesIt) {
  if (!DryCard::has_kernels()) GTEST_SKIP() << kSkipped;
  const TemporaryFolder folder;
  uint64_t nets = 0;
  for (const auto& each : std::filesystem::directory_iterator("tests/golden/nets")) {
    if (each.path().extension() != ".pt2") continue;
    SCOPED_TRACE(each.path());
    const nlohmann::json golden =
        nlohmann::json::parse(file_text(std::filesystem::path(each.path()).replace_extension(".json")));
    const std::string file = folder.file("net.json");
    (void)import_net({each.path(), file, {.classes = 0, .inputs = {}, .loss = golden.value("loss", "")}, {}, "", ""});
    Recipe recipe = read_recipe(file);
    recipe.batch = 70'000;
    EXPECT_GT(rehearse_recipe(recipe, "none", -1).launches, 0u);
    ++nets;
  }
  EXPECT_GT(nets, 20u);
}

INSTANTIATE_TEST_SUITE_P(Nets, CudaRehearsal, ::testing::ValuesIn(kNets),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace reprise::test
