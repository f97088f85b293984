// Tests that the host never accesses the arena directly. ResNet and GPT train, evaluate, save,
// resume and sample on a device on which such an access kills the process (guarded_device.h). The
// bits must be those of the plain CPU. The host cannot read the arena of a CUDA card, but no other
// test would detect that it tries.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "lib/cpu/cpu_kernels.h"
#include "ports/linux/linux_port.h"
#include "tests/interfaces/expect_user_error.h"
#include "tests/interfaces/host_sink.h"
#include "tests/runtime/guarded_device.h"
#include "tests/runtime/programs/train_program.h"
#include "tests/runtime/training_harness.h"
#include "tools/run/snapshots/snapshot.h"
#include "tools/run/inference/sample.h"

namespace reprise {
namespace {

constexpr uint64_t kGuardBytes = 8192;  // memory after the plan's end

// All results of a training.
struct Outcome {
  std::vector<double> losses;
  std::vector<float> gradient_norms;
  std::vector<unsigned char> state, gradients;
  EvaluationReport evaluation;
  std::string snapshot, sample;
  std::vector<double> resumed_losses;
  std::vector<unsigned char> resumed_state;
  uint64_t measured_bytes = 0;
};

void train(Trainer& trainer, const BatchSource& source, int steps, std::vector<double>& losses,
           std::vector<float>& norms) {
  for (int s = 0; s < steps; ++s) {
    StepReport report;
    const Status status = train_step(trainer, source, report);
    ASSERT_TRUE(status.ok()) << status.message;
    losses.push_back(report.loss);
    norms.push_back(report.gradient_norm);
  }
}

// Trains three steps, evaluates and saves. Then resumes in a new trainer, trains two more steps,
// and samples. Returns all results.
Outcome live(const Plan& plan, const Recipe& recipe, const Backend& backend, Arena arena, const Disk& disk) {
  Outcome out;
  Workers workers;
  EXPECT_TRUE(linux_port().start_workers(2, &workers).ok());
  const auto data = open_dataset(recipe, Split::kTraining), evaluation = open_dataset(recipe, Split::kEvaluation);
  const TemporaryFolder folder;
  {
    Trainer trainer;
    const Status bound = bind_plan(plan, backend, workers, arena, trainer, disk);
    EXPECT_TRUE(bound.ok()) << bound.message;
    train(trainer, source_of(*data), 3, out.losses, out.gradient_norms);
    out.measured_bytes = measure(trainer);
    EXPECT_TRUE(evaluate(trainer, source_of(*evaluation), 2, out.evaluation).ok());
    out.state = bytes_at(trainer, trainer.region(Region::kState), plan.state_bytes);
    out.gradients = bytes_at(trainer, trainer.region(Region::kCarried), plan.carried_bytes);
    {
      SnapshotDirectory snapshots(folder.file("s"), snapshot_folder());
      save_snapshot(trainer, recipe, {}, snapshots);
    }
    out.snapshot = test::snapshot_tensors(folder.file("s"));
  }
  {
    Trainer trainer;
    EXPECT_TRUE(bind_plan(plan, backend, workers, arena, trainer, disk).ok());
    EXPECT_TRUE(resume_snapshot(trainer, recipe, nullptr, folder.file("s")).empty());
    train(trainer, source_of(*data), 2, out.resumed_losses, out.gradient_norms);
    out.resumed_state = bytes_at(trainer, trainer.region(Region::kState), plan.state_bytes);
    if (std::holds_alternative<Gpt2Model>(recipe.model)) {
      EXPECT_TRUE(sample_bytes(trainer, "\n", 12, 0.8, out.sample).ok());
    }
  }
  linux_port().stop_workers(&workers);
  return out;
}

struct Case {
  const char* name;
  std::string recipe;
  const char* strategy;
};

std::vector<Case> cases() {
  return {{"resnet", resnet_recipe(R"(, "accumulate": 2, "clip_norm": 1.0)", "bottleneck"), "optimal"},
          {"resnet_bf16", resnet_recipe(R"(, "dtype": "bf16")"), "none"},
          {"resnet_released", resnet_recipe(R"(, "gradient_release": true)"), "optimal"},
          {"resnet_spilling", resnet_recipe(), "h-revolve"},
          {"gpt", gpt_recipe(R"(, "accumulate": 3)"), "optimal"},
          {"gpt_bf16", gpt_recipe(R"(, "dtype": "bf16")"), "optimal"},
          {"gpt_released", gpt_recipe(R"(, "gradient_release": true)"), "none"}};
}

class GuardedTraining : public ::testing::TestWithParam<int> {};

TEST_P(GuardedTraining, HasTheBitsOfThePlainOne) {
  const Case c = cases()[static_cast<size_t>(GetParam())];
  const Recipe recipe = recipe_from(c.recipe);
  const PlannedRun run = plan_run(recipe, c.strategy, c.strategy == std::string("none") ? -1 : 0);
  const Plan plan = run.planned.plan.view();
  EXPECT_EQ(plan.spill_bytes > 0, c.strategy == std::string("h-revolve"));
  GuardedDevice device(plan.arena_bytes + kGuardBytes, test::test_backend());
  const TestArena memory(plan.arena_bytes + kGuardBytes);
  const Outcome guarded = live(plan, recipe, device.backend(), device.arena(), device.disk(plan.spill_bytes));
  const Outcome plain = live(plan, recipe, test::test_backend(), memory.get(), device.disk(plan.spill_bytes));
  EXPECT_EQ(plain.losses, guarded.losses);
  EXPECT_EQ(plain.gradient_norms, guarded.gradient_norms);
  EXPECT_TRUE(plain.state == guarded.state);
  EXPECT_TRUE(plain.gradients == guarded.gradients);
  EXPECT_EQ(plain.evaluation.loss, guarded.evaluation.loss);
  EXPECT_EQ(plain.evaluation.labelled, guarded.evaluation.labelled);
  EXPECT_EQ(plain.evaluation.correct, guarded.evaluation.correct);
  EXPECT_FALSE(plain.snapshot.empty());
  EXPECT_TRUE(plain.snapshot == guarded.snapshot);
  EXPECT_EQ(plain.resumed_losses, guarded.resumed_losses);
  EXPECT_TRUE(plain.resumed_state == guarded.resumed_state);
  EXPECT_EQ(plain.sample, guarded.sample);
  EXPECT_EQ(plan.arena_bytes, plain.measured_bytes);
  EXPECT_EQ(plan.arena_bytes, guarded.measured_bytes);
}

INSTANTIATE_TEST_SUITE_P(Nets, GuardedTraining, ::testing::Range(0, 7),
                         [](const auto& info) { return cases()[static_cast<size_t>(info.param)].name; });

// ---- tests that such an access is detected ----

// A small GPT bound to a device whose arena the host cannot access.
struct GuardedRun {
  explicit GuardedRun(const Backend& cpu = test::test_backend())
      : recipe(recipe_from(gpt_recipe())),
        owned(plan_run(recipe, "none").planned.plan),
        plan(owned.view()),
        device(plan.arena_bytes, cpu),
        data(open_dataset(recipe, Split::kTraining)) {
    EXPECT_TRUE(bind_plan(plan, device.backend(), alone, device.arena(), trainer).ok());
  }
  std::vector<std::vector<unsigned char>> weights() const {  // weights and moments
    std::vector<std::vector<unsigned char>> all;
    for (uint32_t i = 0; i < plan.state.count; ++i) {
      const StateTensor& state = plan.state[i];
      if (state.kind != StateKind::kParameter && state.kind != StateKind::kOptimizer) continue;
      all.push_back(bytes_at(trainer, trainer.state_tensor(i), state.tensor.bytes));
    }
    return all;
  }

  const Recipe recipe;
  const OwnedPlan owned;
  const Plan plan;
  const Workers alone = {.stack_bytes = 1 << 20};
  GuardedDevice device;
  const std::unique_ptr<Dataset> data;
  Trainer trainer;
  StepReport report;
};

volatile unsigned char seen;

TEST(GuardedDeviceDeathTest, KillsAHostThatTouchesTheArena) {
  GuardedRun run;
  const auto read = [&](ArenaAddress from) { seen = *from.for_kernels; };
  EXPECT_DEATH(read(run.trainer.state_tensor(0)), "");
  EXPECT_DEATH(read(run.trainer.arena.base + (run.trainer.arena.bytes - 1)), "");
  EXPECT_DEATH(*run.trainer.region(Region::kProgram).for_kernels = 1, "");
  // If the host reads the result of a row during a step without a copy, the process must die.
  run.trainer.observer = {&run, nullptr, [](void* self, ProgramId, uint32_t) {
                            seen = *static_cast<GuardedRun*>(self)->trainer.region(Region::kProgram).for_kernels;
                          }};
  EXPECT_DEATH((void)train_step(run.trainer, source_of(*run.data), run.report), "");
  run.trainer.observer = {};
  EXPECT_TRUE(train_step(run.trainer, source_of(*run.data), run.report).ok());
}

TEST(GuardedDevice, GivesNothingBeforeItIsWaitedFor) {
  GuardedRun run;
  uint64_t word = 1, before = 0;
  const ArenaAddress at = run.trainer.region(Region::kProgram);
  ASSERT_TRUE(run.trainer.write(at, &word, sizeof word).ok());
  word = 2;  // the step must use the value that was copied before
  ASSERT_TRUE(run.device.backend().host.copy_out(run.trainer.context, &before, at, sizeof before).ok());
  EXPECT_EQ(before, 0xa5a5a5a5a5a5a5a5u);
  ASSERT_TRUE(run.device.backend().host.synchronise(run.trainer.context).ok());
  EXPECT_EQ(before, 1u);
}

// ---- errors that are reported only at the end of a step ----

bool layer_norm_fails = false;
Status layer_norm_that_may_fail(const KernelContext& context, const LayerNormForwardArgsOf<float>& args) {
  return layer_norm_fails ? Status{Code::kBackend, "the kernel fails", 700} : cpu_layer_norm_forward(context, args);
}

TEST(GuardedDevice, AKernelThatFailsEndsTheStep) {
  Backend broken = test::test_backend();
  broken.set<LayerNormForward, float, layer_norm_that_may_fail>();
  layer_norm_fails = false;
  GuardedRun run(broken);
  ASSERT_TRUE(train_step(run.trainer, source_of(*run.data), run.report).ok());
  layer_norm_fails = true;
  const auto before = run.weights();
  const Status status = train_step(run.trainer, source_of(*run.data), run.report);
  EXPECT_EQ(status.code, Code::kBackend);
  EXPECT_EQ(status.detail, 700u);
  EXPECT_EQ(run.trainer.step, 1u);
  EXPECT_TRUE(run.weights() == before);
  layer_norm_fails = false;
  EXPECT_TRUE(train_step(run.trainer, source_of(*run.data), run.report).ok());
}

// If a kernel finds a fault in the data, the step must report it at its end and change nothing.
TEST(GuardedDevice, AFaultInTheDataEndsTheStep) {
  GuardedRun run;
  ASSERT_TRUE(train_step(run.trainer, source_of(*run.data), run.report).ok());
  const auto spoilt = [](void* data, uint64_t step, uint32_t micro, BatchSink& sink) {
    std::vector<int32_t> tokens(sink.label_count()), labels(sink.label_count());
    BatchSink own = host_sink(tokens.data(), sink.input_bytes(), labels.data(), labels.size());
    static_cast<Dataset*>(data)->fill(step, micro, own);
    tokens[40] = tokens[8] = 1000;
    sink.add(tokens.data(), sink.input_bytes(), labels.data(), labels.size());
    return ok_status();
  };
  const auto before = run.weights();
  const Status status = train_step(run.trainer, {run.data.get(), spoilt}, run.report);
  EXPECT_EQ(status.code, Code::kIndexOutOfRange);
  EXPECT_EQ(status.detail, 8u);
  EXPECT_EQ(run.trainer.step, 1u);
  EXPECT_TRUE(run.weights() == before);
  EXPECT_TRUE(train_step(run.trainer, source_of(*run.data), run.report).ok());
}

// If a source gives fewer or more bytes than a micro-batch, the step must fail and change no
// weight.
TEST(BatchSink, WantsTheWholeMicroBatchAndNoMore) {
  GuardedRun run;
  const auto before = run.weights();
  struct Given {
    uint64_t more_input, more_labels, less_input, less_labels;
  };
  for (const Given& given : {Given{4, 0, 0, 0}, Given{0, 1, 0, 0}, Given{0, 0, 4, 0}, Given{0, 0, 0, 1}}) {
    const BatchSource source = {const_cast<Given*>(&given), [](void* state, uint64_t, uint32_t, BatchSink& sink) {
                                  const Given& g = *static_cast<Given*>(state);
                                  const uint64_t bytes = sink.input_bytes() + g.more_input - g.less_input;
                                  const uint64_t count = sink.label_count() + g.more_labels - g.less_labels;
                                  const std::vector<unsigned char> input(bytes, 0);
                                  const std::vector<int32_t> labels(count, 0);
                                  sink.add(input.data(), bytes, labels.data(), count);
                                  return ok_status();
                                }};
    EXPECT_EQ(train_step(run.trainer, source, run.report).code, Code::kUnsupported);
    EvaluationReport report;
    EXPECT_EQ(evaluate(run.trainer, source, 1, report).code, Code::kUnsupported);
    EXPECT_EQ(run.trainer.step, 0u);
  }
  EXPECT_TRUE(run.weights() == before);
  EXPECT_TRUE(train_step(run.trainer, source_of(*run.data), run.report).ok());
}

// If each sample has one label, a call of add() passes the labels of any number of samples,
// together with the document starts of all their positions.
TEST(BatchSink, TakesTheStartsOfASampleWithItsLabel) {
  constexpr uint64_t kSamples = 3, kPositions = 4;
  std::vector<int32_t> tokens(kSamples * kPositions), labels(kSamples), starts(kSamples * kPositions, -1), given;
  for (int32_t i = 0; i < static_cast<int32_t>(starts.size()); ++i) given.push_back(i);
  BatchSink sink = host_sink(tokens.data(), tokens.size() * sizeof(int32_t), labels.data(), labels.size(),
                             starts.data(), nullptr, 0, kPositions);
  for (const uint64_t samples : {1, 2}) {
    EXPECT_EQ(sink.start_count(), sink.label_count() * kPositions);
    const uint64_t first = samples - 1;
    sink.add(&given[first * kPositions], samples * kPositions * sizeof(int32_t), &given[first], samples,
             &given[first * kPositions]);
  }
  EXPECT_EQ(sink.start_count(), 0u);
  EXPECT_TRUE(sink.status().ok());
  EXPECT_EQ(starts, given);
  EXPECT_EQ(tokens, given);
  EXPECT_EQ(labels, (std::vector<int32_t>{0, 1, 2}));
}

// Token types are added together with the tokens, in pieces of any size. They are required if the
// plan has a slot for them, and refused otherwise.
TEST(BatchSink, TakesTheTypesOfTokensWithThem) {
  const std::vector<int32_t> given = {0, 1, 2, 3, 4, 5};
  std::vector<int32_t> tokens(6), types(6, -1), labels(2);
  BatchSink sink = host_sink(tokens.data(), 24, labels.data(), 2, nullptr, nullptr, 0, 1, DType::kI32, types.data());
  EXPECT_TRUE(sink.wants_token_types());
  sink.add(given.data(), 8, nullptr, 0, nullptr, given.data());
  sink.add(given.data() + 2, 16, labels.data(), 2, nullptr, given.data() + 2);
  EXPECT_TRUE(sink.status().ok()) << sink.status().message;
  EXPECT_EQ(types, given);
  EXPECT_EQ(tokens, given);
  BatchSink without = host_sink(tokens.data(), 24, labels.data(), 2, nullptr, nullptr, 0, 1, DType::kI32, types.data());
  without.add(given.data(), 24, labels.data(), 2);
  EXPECT_EQ(without.status().code, Code::kUnsupported);
  BatchSink unasked = host_sink(tokens.data(), 24, labels.data(), 2);
  unasked.add(given.data(), 24, labels.data(), 2, nullptr, given.data());
  EXPECT_EQ(unasked.status().code, Code::kUnsupported);
}

TEST(Bind, WantsAWorkspaceForItsMarks) {
  const Recipe recipe = recipe_from(gpt_recipe());
  const PlannedRun run = plan_run(recipe, "none");
  const Plan plan = run.planned.plan.view();
  const TestArena arena(plan.arena_bytes);
  const Workers alone = {.stack_bytes = 1 << 20};
  Trainer trainer;
  Resources given = {.arena = arena.get(), .workers = &alone};
  const Status refused = bind(plan, test::test_backend(), given, trainer);
  EXPECT_EQ(refused.code, Code::kArenaTooSmall);
  EXPECT_GT(refused.detail, 0u);
  std::vector<uint64_t> memory(refused.detail / sizeof(uint64_t) + 2);
  given.workspace = {memory.data(), refused.detail - 1};
  EXPECT_EQ(bind(plan, test::test_backend(), given, trainer).code, Code::kArenaTooSmall);
  given.workspace = {reinterpret_cast<unsigned char*>(memory.data()) + 1, refused.detail};
  EXPECT_EQ(bind(plan, test::test_backend(), given, trainer).code, Code::kArenaTooSmall) << "aligned";
  given.workspace = {memory.data(), refused.detail};
  EXPECT_TRUE(bind(plan, test::test_backend(), given, trainer).ok());
  // The workspace may be in the arena, which bind() uses only later.
  given.workspace = {arena.get().base.for_kernels, arena.get().bytes};
  EXPECT_TRUE(bind(plan, test::test_backend(), given, trainer).ok());
  given.workers = nullptr;
  EXPECT_EQ(bind(plan, test::test_backend(), given, trainer).code, Code::kUnsupported);
}

}  // namespace
}  // namespace reprise
