// Trains small nets by the CUDA backend on the fibres, with the trainer, dispatch and plans of a
// card. The bits must be equal for every budget, planned bytes must equal measured bytes, and
// losses must be near the CPU's losses. So every `make test` checks whole CUDA steps without a
// card.
#include "tests/ports/fibres/cuda_fibre.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cuda/cuda_backend.h"
#include "cuda/cuda_recorder.h"
#include "cuda/launch.h"
#include "tests/runtime/expect_same.h"

namespace reprise {
namespace {

struct Case {
  const char* name;
  std::string recipe;
  double tolerance;  // maximum relative difference of a loss from the CPU's loss
  const char* math = "f32";
};

// Returns the recipe of a ResNet that is small enough for the fibres. It has basic units with
// stride 1, and with stride 2 and a projection. With fewer than three images in a batch, no plan
// would spill, because boundaries would not decide the smallest budget.
std::string tiny_resnet(const std::string& extra) {
  return R"({"name": "tiny-resnet", "model": {"family": "resnet", "block": "basic", "units": [1, 1, 1], "width": 8, "stem": "cifar", "classes": 5,
         "image": [8, 8, 3]}, "data": {"kind": "synthetic"}, "batch": 3, "steps": 10, "seed": 3,
         "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9, "nesterov": true, "weight_decay": 0.001})" +
         extra + "}";
}

std::string tiny_gpt(const std::string& extra) {
  return R"({"name": "tiny-gpt", "model": {"family": "gpt2", "vocab_size": 37, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2,
         "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1}, "data": {"kind": "synthetic"}, "batch": 2, "sequence": 11, "steps": 10,
         "seed": 4, "optimizer": {"name": "adamw", "lr": 0.003, "weight_decay": 0.1, "no_decay": ["*.bias", "*ln_*"]})" +
         extra + "}";
}

const Case kCases[] = {{"resnet", tiny_resnet(""), 1e-4},
                       {"resnet_bf16", tiny_resnet(R"(, "dtype": "bf16")"), 2e-2},
                       {"gpt", tiny_gpt(""), 1e-4},
                       {"gpt_bf16_accumulated", tiny_gpt(R"(, "dtype": "bf16", "accumulate": 2, "clip_norm": 0.5)"),
                        2e-2}};
// Cases with another math than f32. Tolerances are larger for the ResNet, because its norms over
// few pixels amplify rounding errors.
const Case kMathCases[] = {{"resnet_tf32", tiny_resnet(""), 1e-2, "tf32"},
                           {"gpt_tf32", tiny_gpt(""), 1e-3, "tf32"},
                           {"gpt_bf16x3", tiny_gpt(""), 1e-4, "bf16x3"}};

const CudaCopies& copies_of_tests() {
  static const CudaCopies copies = [] {
    CudaCopies made;
    (void)cudaStreamCreateWithFlags(&made.queue, cudaStreamNonBlocking);
    (void)cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t*>(&made.asked), cudaEventDisableTiming);
    for (void*& event : made.copied)
      (void)cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t*>(&event), cudaEventDisableTiming);
    return made;
  }();
  return copies;
}

template <ProductMath kMath = ProductMath::kF32>
const Backend& fibre_backend() {
  static const CudaMachine machine = [] {
    CudaMachine chosen;
    choose_cuda_machine(chosen, CardSize::kSmall, kMath);
    chosen.queue = fibre::queue_of_tests();
    chosen.copies = &copies_of_tests();
    return chosen;
  }();
  static const Backend backend = [] {
    Backend row_by_row = cuda_backend(machine);
    row_by_row.recorder = {};
    return row_by_row;
  }();
  return backend;
}
const Backend& backend_for(const Case& c) {
  const std::string math = c.math;
  return math == "tf32"     ? fibre_backend<ProductMath::kTf32>()
         : math == "bf16x3" ? fibre_backend<ProductMath::kBf16x3>()
                            : fibre_backend();
}

Recipe recipe_for(const Case& c, const std::string& backend) {
  const std::string math = backend == "cpu" ? "f32" : c.math;
  return recipe_from(c.recipe.substr(0, c.recipe.size() - 1) + ", \"backend\": \"" + backend + "\", \"math\": \"" +
                     math + "\"}");
}

class CudaTraining : public ::testing::TestWithParam<int> {};

void train_in_budgets(const Case& c, uint64_t steps, std::initializer_list<double> shares) {
  fibre::expect_queue(fibre::queue_of_tests());
  const Recipe on_cpu = recipe_for(c, "cpu"), on_card = recipe_for(c, "cuda");
  const RunResult cpu = train_plan(plan_run(on_cpu, "none").planned.plan, on_cpu, {.steps = static_cast<int>(steps)});
  RunOptions options = {.steps = static_cast<int>(steps), .backend = &backend_for(c)};
  const RunResult expected = train_plan(plan_run(on_card, "none").planned.plan, on_card, options);
  if (backend_for(c).rules != fibre_backend().rules) {
    const Recipe plain = recipe_for({c.name, c.recipe, 0}, "cuda");
    const RunResult in_f32 =
        train_plan(plan_run(plain, "none").planned.plan, plain, {.steps = 1, .backend = &fibre_backend()});
    EXPECT_NE(in_f32.losses[0], expected.losses[0]) << "another math has other bits";
  }
  for (size_t s = 0; s < cpu.losses.size(); ++s) {
    EXPECT_NEAR(expected.losses[s], cpu.losses[s], c.tolerance * std::abs(cpu.losses[s])) << c.name << " step " << s;
  }
  uint64_t seed = 1;
  for (const double share : shares) {
    fibre::set_order(++seed);
    options.poison = share == 0.0;
    const PlannedRun run = plan_run(on_card, "optimal", share);
    expect_same(expected, train_plan(run.planned.plan, on_card, options),
                std::string(c.name) + " at share " + std::to_string(share));
  }
  fibre::expect_queue(nullptr);
  EXPECT_EQ(fibre::take_report().text, "");
}

TEST_P(CudaTraining, TheSameBitsForEveryBudgetAndLossesAsTheCpu) {
  train_in_budgets(kCases[GetParam()], 3, {0.0, 0.3, 0.6});
}

TEST(CudaMathTraining, TheSameBitsForEveryBudgetAndLossesAsTheCpu) {
  for (const Case& c : kMathCases) train_in_budgets(c, 2, {0.0});
}

// A plan that spills to the host must give the bits of a plan that stores everything, whether
// copies run early or late, and whether programs run row by row or are replayed.
TEST_P(CudaTraining, TheHostIsASecondLevelWithTheSameBits) {
  const Case& c = kCases[GetParam()];
  Recipe recipe = recipe_for(c, "cuda");
  fibre::expect_queue(fibre::queue_of_tests());
  Backend recorded = fibre_backend();
  recorded.recorder = kCudaRecorder;
  const RunResult expected =
      train_plan(plan_run(recipe, "none").planned.plan, recipe, {.steps = 3, .backend = &fibre_backend()});
  recipe.schedule.host_bytes = uint64_t{1} << 30;
  recipe.schedule.write_cost = recipe.schedule.read_cost = 0.25;
  const PlannedRun run = plan_run(recipe, "h-revolve", 0);
  ASSERT_TRUE(spills_to(run.planned.plan.view(), SpillLevel::kHost));
  for (const bool late : {false, true}) {
    for (const Backend* backend : {&fibre_backend(), static_cast<const Backend*>(&recorded)}) {
      fibre::set_late_copies(late);
      expect_same(expected, train_plan(run.planned.plan, recipe, {.steps = 3, .backend = backend}),
                  std::string(c.name) + (late ? " late" : " early"));
      EXPECT_EQ(fibre::take_report().text, "");
    }
  }
  fibre::expect_queue(nullptr);
}

// Checks that the comparison of TheHostIsASecondLevelWithTheSameBits detects a missing wait, and a
// copy that begins before its source is written.
TEST(CudaTrainingJudge, SeesALostWaitAndAnEarlyStart) {
  Recipe recipe = recipe_for(kCases[0], "cuda");
  fibre::expect_queue(fibre::queue_of_tests());
  const RunResult expected =
      train_plan(plan_run(recipe, "none").planned.plan, recipe, {.steps = 2, .backend = &fibre_backend()});
  recipe.schedule.host_bytes = uint64_t{1} << 30;
  recipe.schedule.write_cost = recipe.schedule.read_cost = 0.25;
  const PlannedRun run = plan_run(recipe, "h-revolve", 0);
  Backend waits_for_nothing = fibre_backend(), starts_early = fibre_backend();
  waits_for_nothing.host.await = [](const KernelContext&, uint32_t) { return ok_status(); };
  starts_early.host.start_out = [](const KernelContext&, void* to, ArenaAddress from, uint64_t bytes, uint32_t number) {
    const CudaCopies& copies = copies_of_tests();
    (void)cudaMemcpyAsync(to, from.for_kernels, bytes, cudaMemcpyDeviceToHost, copies.queue);
    return Status{cuda_status(
        cudaEventRecord(static_cast<cudaEvent_t>(copies.copied[number % CudaCopies::kEvents]), copies.queue))};
  };
  for (const auto& [backend, late] : {std::pair{&waits_for_nothing, true}, {&starts_early, false}}) {
    fibre::set_late_copies(late);
    bool same = false;
    try {
      same = train_plan(run.planned.plan, recipe, {.steps = 2, .backend = backend}).state == expected.state;
    } catch (const std::runtime_error&) {  // the faulty backend may give a loss that is not finite
    }
    EXPECT_FALSE(same) << (late ? "a lost wait" : "an early start");
    (void)cudaDeviceSynchronize();
    (void)fibre::take_report();
  }
  fibre::expect_queue(nullptr);
}

INSTANTIATE_TEST_SUITE_P(Nets, CudaTraining, ::testing::Range(0, 4),
                         [](const auto& info) { return std::string(kCases[info.param].name); });

}  // namespace
}  // namespace reprise
