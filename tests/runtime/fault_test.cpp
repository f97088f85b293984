// Tests a step with bad data and on weaker machines: NaN, indices out of range, denormals, more
// threads than cores, a processor without AVX2, no BLIS. Each case must train, or end with one
// clear error. It must not hang or give wrong weights.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>

#include "lib/cpu/cpu_kernels.h"
#include "ports/linux/linux_port.h"
#include "tests/interfaces/host_sink.h"
#include "tests/runtime/training_harness.h"

namespace reprise {
namespace {

constexpr float kDenormal = 1e-40f;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr uint32_t kManyTasks = 64;

bool flushes_denormals() {
  volatile float denormal = kDenormal, one = 1.0f;
  return denormal * one == 0.0f;
}

// A bound plan of a recipe. A test can change the pixels, indices and weights with which it trains.
class BoundRun {
 public:
  BoundRun(const std::string& recipe, uint32_t threads, const Backend& backend = test::test_backend())
      : recipe_(recipe_from(recipe)),
        plan_(plan_run(recipe_, "optimal").planned.plan),
        view_(plan_.view()),
        arena_(view_.arena_bytes),
        data_(open_dataset(recipe_, Split::kTraining)) {
    EXPECT_TRUE(linux_port().start_workers(threads, &workers).ok());
    EXPECT_TRUE(bind_plan(view_, backend, workers, arena_.get(), trainer).ok());
  }
  ~BoundRun() { linux_port().stop_workers(&workers); }
  BoundRun(const BoundRun&) = delete;
  BoundRun& operator=(const BoundRun&) = delete;

  Status step() {
    const BatchSource source = {this, [](void* self, uint64_t step, uint32_t micro, BatchSink& sink) {
                                  static_cast<BoundRun*>(self)->fill(step, micro, sink);
                                  return ok_status();
                                }};
    return train_step(trainer, source, report);
  }
  Status evaluate_two() {
    EvaluationReport unused;
    const BatchSource source = {this, [](void* self, uint64_t step, uint32_t, BatchSink& sink) {
                                  static_cast<BoundRun*>(self)->fill(step, static_cast<uint32_t>(step), sink);
                                  return ok_status();
                                }};
    return evaluate(trainer, source, 2, unused);
  }
  std::vector<float> values_of(StateKind kind) {
    std::vector<float> all;
    for_each_value(kind, [&](float& value) { all.push_back(value); });
    return all;
  }
  // Returns the bits of weights and optimizer state, which a failed step must not change.
  std::vector<uint32_t> weights() {
    std::vector<uint32_t> all;
    for (const StateKind kind : {StateKind::kParameter, StateKind::kOptimizer}) {
      for_each_value(kind, [&](float& value) { all.push_back(std::bit_cast<uint32_t>(value)); });
    }
    return all;
  }
  void for_each_value(StateKind kind, const std::function<void(float&)>& visit) {
    for (uint32_t i = 0; i < view_.state.count; ++i) {
      const StateTensor& tensor = view_.state[i];
      if (tensor.kind != kind || tensor.tensor.dtype != DType::kF32) continue;
      std::vector<float> values = floats_of(trainer, i);
      for (float& value : values) visit(value);
      EXPECT_TRUE(trainer.write(trainer.state_tensor(i), values.data(), values.size() * sizeof(float)).ok());
    }
  }

  std::function<void(float&)> spoil = [](float&) {};  // changes every pixel of every batch
  std::function<void(uint32_t micro, int32_t* tokens, int32_t* labels)> spoil_indices;  // tokens is null for images
  Workers workers;
  Trainer trainer;
  StepReport report;

 private:
  void fill(uint64_t step, uint32_t micro, BatchSink& sink) {
    std::vector<float> input(sink.input_bytes() / sizeof(float));  // for texts: tokens, not floats
    std::vector<int32_t> labels(sink.label_count());
    BatchSink own = host_sink(input.data(), sink.input_bytes(), labels.data(), labels.size());
    data_->fill(step, micro, own);
    const Program& program = view_.program(ProgramId::kMicroFirst);
    const bool images = program.slots[program.input].tensor.dtype == DType::kF32;
    if (images) {
      for (float& value : input) spoil(value);
    }
    if (spoil_indices) spoil_indices(micro, images ? nullptr : reinterpret_cast<int32_t*>(input.data()), labels.data());
    sink.add(input.data(), sink.input_bytes(), labels.data(), labels.size());
  }

  const Recipe recipe_;
  const OwnedPlan plan_;
  const Plan view_;
  const TestArena arena_;
  const std::unique_ptr<Dataset> data_;
};

// bind_proved() omits the second proof, but must still check the given resources.
TEST(Bind, ProvesAgainUnlessTheCompilersProofIsNamed) {
  OwnedPlan owned = plan_run(recipe_from(resnet_recipe()), "none").planned.plan;
  owned.worker_stack_bytes += 256;  // harmless, but check() reports that no row needs so much
  const Plan plan = owned.view();
  const TestArena arena(plan.arena_bytes);
  const Workers alone = {.stack_bytes = 1 << 20};
  Trainer trainer;
  EXPECT_EQ(bind_plan(plan, test::test_backend(), alone, arena.get(), trainer).code, Code::kBadPlan);
  EXPECT_TRUE(bind_proved(plan, test::test_backend(), {.arena = arena.get(), .workers = &alone}, trainer).ok());
  const Arena half = {arena.get().base, plan.arena_bytes / 2};
  EXPECT_EQ(bind_proved(plan, test::test_backend(), {.arena = half, .workers = &alone}, trainer).code,
            Code::kArenaTooSmall);
  const Workers shallow = {.stack_bytes = 1 << 10};
  EXPECT_EQ(bind_proved(plan, test::test_backend(), {.arena = arena.get(), .workers = &shallow}, trainer).code,
            Code::kUnsupported);
}

const std::string kAccumulated = R"(, "accumulate": 2, "clip_norm": 1.0)";
const std::string kReleased = R"(, "gradient_release": true)";

// ---- numbers that are not finite ---------------------------------------------------------------

TEST(NonFinite, PixelEndsTheStepAndTheNextOneGoesOn) {
  for (const std::string& recipe : {resnet_recipe(), resnet_recipe(kAccumulated), resnet_recipe(kReleased)}) {
    double second_loss = 0;
    {
      BoundRun clean(recipe, 2);
      ASSERT_TRUE(clean.step().ok() && clean.step().ok());
      second_loss = clean.report.loss;
    }
    for (const float bad : {kNan, kInfinity}) {
      BoundRun run(recipe, 2);
      ASSERT_TRUE(run.step().ok());
      const std::vector<uint32_t> before = run.weights();
      int pixel = 0;
      run.spoil = [&](float& x) { x = ++pixel == 100 ? bad : x; };
      const Status status = run.step();
      EXPECT_EQ(status.code, Code::kNonFinite) << recipe;
      EXPECT_EQ(status.detail, 2u) << recipe;
      EXPECT_EQ(run.trainer.step, 1u) << recipe;
      EXPECT_TRUE(run.weights() == before) << recipe;
      for (const float value : run.values_of(StateKind::kBuffer))
        ASSERT_TRUE(std::isfinite(value)) << "running statistics: " << recipe;
      run.spoil = [](float&) {};
      EXPECT_TRUE(run.step().ok()) << recipe;
      EXPECT_EQ(run.report.loss, second_loss) << recipe;
    }
  }
}

TEST(NonFinite, WeightEndsTheStep) {
  for (const std::string& recipe :
       {resnet_recipe(), resnet_recipe(kReleased), gpt_recipe(), gpt_recipe(kAccumulated)}) {
    BoundRun run(recipe, 2);
    ASSERT_TRUE(run.step().ok());
    int weight = 0;
    run.for_each_value(StateKind::kParameter, [&](float& w) { w = ++weight == 7 ? kNan : w; });
    const std::vector<uint32_t> before = run.weights();
    EXPECT_EQ(run.step().code, Code::kNonFinite) << recipe;
    EXPECT_TRUE(run.weights() == before) << recipe;
  }
}

Status layer_norm_with_infinite_gradient(const KernelContext& context, const LayerNormBackwardArgsOf<float>& args) {
  const Status status = cpu_layer_norm_backward(context, args);
  if (args.dgamma != nullptr) args.dgamma[0] = kInfinity;
  return status;
}

// The loss is finite, but a gradient is not. The step must end without a changed weight. Gradient
// release is not tested: there, the fault is detected after other gradients have already been
// applied.
TEST(NonFinite, GradientEndsTheStep) {
  Backend backend = test::test_backend();
  backend.set<LayerNormBackward, float, layer_norm_with_infinite_gradient>();
  for (const std::string& recipe : {gpt_recipe(), gpt_recipe(kAccumulated)}) {
    BoundRun run(recipe, 2, backend);
    const std::vector<uint32_t> before = run.weights();
    EXPECT_EQ(run.step().code, Code::kNonFinite) << recipe;
    EXPECT_TRUE(std::isfinite(run.report.loss)) << recipe;
    EXPECT_TRUE(run.weights() == before) << recipe;
  }
}

// ---- indices out of range ----------------------------------------------------------------------

struct BadIndex {
  std::string recipe;
  const char* message;
  uint32_t micro;  // the bad micro-batch
  std::function<void(int32_t* tokens, int32_t* labels)> spoil;  // changes index 2, which must be reported
};

std::vector<BadIndex> bad_indices() {
  const char* const label = "a label must be in [0, classes), or -100 for none";
  const char* const token = "a token must be at least 0 and less than the vocabulary size";
  const auto spoil_labels = [](int32_t bad) { return [bad](int32_t*, int32_t* labels) { labels[2] = bad; }; };
  std::vector<BadIndex> all;
  for (const std::string& recipe : {resnet_recipe(), resnet_recipe(kReleased), gpt_recipe(), gpt_recipe(kReleased)}) {
    for (const int32_t bad : {-1, 37, std::numeric_limits<int32_t>::min()})
      all.push_back({recipe, label, 0, spoil_labels(bad)});
  }
  for (const uint32_t micro : {0u, 1u}) {
    all.push_back({resnet_recipe(kAccumulated), label, micro, spoil_labels(5)});
    all.push_back({gpt_recipe(kAccumulated), token, micro,
                   [](int32_t* tokens, int32_t* labels) {
                     for (const int position : {2, 3, 20}) tokens[position] = 37;
                     labels[0] = -7;  // a later row detects it
                   }});
  }
  all.push_back({gpt_recipe(kReleased), token, 0,
                 [](int32_t* tokens, int32_t*) { tokens[2] = -1; }});
  return all;
}

TEST(BadIndex, EndsTheStepWithItsPositionAndTheNextOneGoesOn) {
  for (const BadIndex& bad : bad_indices()) {
    std::vector<uint32_t> expected;
    for (const uint32_t threads : {1u, 3u}) {
      BoundRun run(bad.recipe, threads);
      ASSERT_TRUE(run.step().ok());
      const std::vector<uint32_t> before = run.weights();
      run.spoil_indices = [&](uint32_t micro, int32_t* tokens, int32_t* labels) {
        if (micro == bad.micro) bad.spoil(tokens, labels);
      };
      for (const Status& status : {run.step(), run.evaluate_two()}) {
        EXPECT_EQ(status.code, Code::kIndexOutOfRange) << bad.recipe;
        EXPECT_EQ(status.detail, 2u) << bad.recipe;
        EXPECT_STREQ(status.message, bad.message) << bad.recipe;
      }
      StepScalars scalars;
      ASSERT_TRUE(run.trainer.read(&scalars, run.trainer.state_tensor(0), sizeof scalars).ok());
      const Row& row = run.trainer.plan->program(ProgramId::kEvaluate).rows[scalars.fault.row];
      EXPECT_EQ(row.op, scalars.fault.code == DataFault::kToken ? Op::kEmbedding : Op::kLossHead);
      EXPECT_EQ(run.trainer.step, 1u);
      EXPECT_TRUE(run.weights() == before) << bad.recipe;
      run.spoil_indices = nullptr;
      EXPECT_TRUE(run.step().ok() && run.step().ok()) << bad.recipe;
      if (threads == 1) expected = run.weights();
      EXPECT_TRUE(run.weights() == expected) << bad.recipe;
    }
  }
}

// ---- denormals ---------------------------------------------------------------------------------

// Returns the number of tasks in which denormals are treated as zero. There are so many tasks, and
// each takes so long, that every worker runs one.
uint32_t flushing_tasks(const Workers& workers) {
  std::atomic<uint32_t> count{0};
  const auto task = [](void* counter, uint32_t) {
    usleep(200);
    if (flushes_denormals()) ++*static_cast<std::atomic<uint32_t>*>(counter);
  };
  workers.run(workers.state, kManyTasks, task, &count);
  return count;
}

std::atomic<uint32_t> kernel_calls{0}, tasks_that_do_not_flush{0};

Status relu_that_looks_at_the_mode(const KernelContext& context, const UnaryArgsOf<float>& args) {
  ++kernel_calls;
  if (!flushes_denormals()) ++tasks_that_do_not_flush;
  parallel_for(*context.workers, 8, [](uint32_t) { tasks_that_do_not_flush += !flushes_denormals(); });
  return cpu_relu_forward(context, args);
}

TEST(Denormals, AreZeroWithinAStepAlone) {
  if (kFlushDenormals == 0) GTEST_SKIP() << "this processor's mode is not known";
  Backend backend = test::test_backend();
  backend.set<ReluForward, float, relu_that_looks_at_the_mode>();
  BoundRun run(resnet_recipe(), 3, backend);
  uint32_t pixels_that_flush = 0;
  run.spoil = [&](float&) { pixels_that_flush += flushes_denormals(); };
  kernel_calls = tasks_that_do_not_flush = 0;
  ASSERT_TRUE(run.step().ok());
  run.spoil = [&](float& x) { x = kNan; };
  ASSERT_EQ(run.step().code, Code::kNonFinite);
  EXPECT_GT(kernel_calls, 0u);
  EXPECT_EQ(tasks_that_do_not_flush, 0u);
  EXPECT_EQ(pixels_that_flush, 0u) << "the source of batches is the application's";
  EXPECT_FALSE(flushes_denormals()) << "the caller's mode must come back";
  EXPECT_EQ(flushing_tasks(run.workers), 0u) << "the workers' mode must come back";
}

TEST(Denormals, PixelsAreZeros) {
  if (kFlushDenormals == 0) GTEST_SKIP() << "this processor's mode is not known";
  std::vector<uint32_t> weights[2];
  for (const float pixel : {0.0f, kDenormal}) {
    BoundRun run(resnet_recipe(), 2);
    run.spoil = [&](float& x) { x = pixel; };
    for (int step = 0; step < 4; ++step) ASSERT_TRUE(run.step().ok()) << pixel;
    weights[pixel == 0.0f ? 0 : 1] = run.weights();
  }
  EXPECT_TRUE(weights[0] == weights[1]);
}

TEST(Denormals, WeightsTrainToTheSameBits) {
  for (const std::string& recipe : {resnet_recipe(), gpt_recipe()}) {
    std::vector<uint32_t> first;
    for (const uint32_t threads : {1u, 3u}) {
      BoundRun run(recipe, threads);
      run.for_each_value(StateKind::kParameter, [](float& w) { w *= kDenormal; });
      for (int step = 0; step < 3; ++step) EXPECT_TRUE(run.step().ok() && std::isfinite(run.report.loss)) << recipe;
      if (threads == 1) first = run.weights();
      EXPECT_TRUE(run.weights() == first) << recipe;
    }
  }
}

// ---- weaker machines ---------------------------------------------------------------------------

TEST(Machine, MoreThreadsThanCores) {
  for (const std::string& text : {resnet_recipe(), gpt_recipe()}) {
    const Recipe recipe = recipe_from(text);
    const PlannedRun run = plan_run(recipe, "optimal", 0);
    const RunResult two = train_plan(run.planned.plan, recipe, {.steps = 4, .workers = 2});
    const RunResult maximum = train_plan(run.planned.plan, recipe, {.steps = 4, .workers = linux_port().max_workers});
    EXPECT_EQ(two.losses, maximum.losses) << text;
    EXPECT_TRUE(two.state == maximum.state) << text;
  }
}

TEST(Machine, EveryLevelTrains) {
  const std::pair<VectorLevel, GemmTileChoice> levels[] = {{VectorLevel::kBaseline, GemmTileChoice::kBaseline},
                                                           {VectorLevel::kBaseline, GemmTileChoice::kFastest},
                                                           {VectorLevel::kAvx2, GemmTileChoice::kAvx2},
                                                           {VectorLevel::kAvx512, GemmTileChoice::kWidest}};
  for (const std::string& text : {resnet_recipe(), gpt_recipe()}) {
    const Recipe recipe = recipe_from(text);
    const PlannedRun none = plan_run(recipe, "none"), minimum = plan_run(recipe, "optimal", 0);
    const RunResult best = train_plan(none.planned.plan, recipe, {.steps = 5});
    for (const auto& [level, tile] : levels) {
      const Backend* backend = test::backend_with(tile, level);
      if (backend == nullptr) continue;
      const std::string what = backend->kernel_set + (": " + text);
      const RunResult one = train_plan(none.planned.plan, recipe, {.steps = 5, .workers = 1, .backend = backend});
      const RunResult two = train_plan(minimum.planned.plan, recipe, {.steps = 5, .workers = 2, .backend = backend});
      for (size_t step = 0; step < best.losses.size(); ++step)
        EXPECT_NEAR(one.losses[step], best.losses[step], 1e-4 * best.losses[step]) << what;
      EXPECT_EQ(one.losses, two.losses) << what;
      EXPECT_TRUE(one.state == two.state) << what;
    }
  }
}

}  // namespace
}  // namespace reprise
