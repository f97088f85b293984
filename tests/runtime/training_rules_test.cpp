// Tests rules that must hold under every schedule: running statistics are updated once, gradients
// do not survive a step, accumulation is a mean, frozen weights do not change, and the loss falls.
// A recomputation with side effects would violate them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/runtime/training_harness.h"
#include "tools/plan/graph/backward_order.h"

namespace reprise {
namespace {

int64_t batches_tracked(const OwnedPlan& plan, const RunResult& result, const std::string& name) {
  for (const StateTensor& state : plan.state) {
    if (state.name == name) return *reinterpret_cast<const int64_t*>(result.state.data() + state.tensor.offset);
  }
  return -1;
}

TEST(TrainingRules, BatchStatisticsMoveOncePerMicroBatch) {
  const Recipe recipe = recipe_from(resnet_recipe(R"(, "accumulate": 3)"));
  for (const char* strategy : {"none", "revolve", "optimal"}) {
    const PlannedRun run = plan_run(recipe, strategy, strategy == std::string("none") ? -1 : 0);
    const RunResult result = train_plan(run.planned.plan, recipe, {.steps = 4});
    int layers = 0;
    for (const StateTensor& state : run.planned.plan.state) {
      const std::string name = state.name;
      if (name.find("num_batches_tracked") == std::string::npos) continue;
      EXPECT_EQ(batches_tracked(run.planned.plan, result, name), 12) << strategy << " " << name;
      ++layers;
    }
    EXPECT_EQ(layers, 13);  // norms: the stem, 2 in each of 5 units, and 2 projections
  }
}

// After one update the running mean is 0.1 of the batch's mean. Two updates would give 0.19.
TEST(TrainingRules, RunningMeanIsOneMove) {
  const Recipe recipe = recipe_from(resnet_recipe());
  const PlannedRun none = plan_run(recipe, "none"), minimum = plan_run(recipe, "optimal", 0);
  const auto expected =
      state_values(none.planned.plan, train_plan(none.planned.plan, recipe, {.steps = 1}), "layer1.0.bn1.running_mean");
  const auto actual = state_values(minimum.planned.plan, train_plan(minimum.planned.plan, recipe, {.steps = 1}),
                                   "layer1.0.bn1.running_mean");
  EXPECT_EQ(expected, actual);
  EXPECT_NE(expected[0], 0.0f);
}

TEST(TrainingRules, NoGradientSurvivesIntoTheNextStep) {
  for (const std::string& text : {resnet_recipe(R"(, "accumulate": 2)"), gpt_recipe(R"(, "accumulate": 2)")}) {
    const Recipe recipe = recipe_from(text);
    const PlannedRun run = plan_run(recipe, "optimal", 0);
    const RunResult clean = train_plan(run.planned.plan, recipe, {.steps = 4});
    const RunResult poisoned = train_plan(run.planned.plan, recipe, {.steps = 4, .poison_gradients = true});
    EXPECT_EQ(clean.losses, poisoned.losses) << recipe.name;
    EXPECT_TRUE(clean.state == poisoned.state) << recipe.name;
  }
}

// Without batch-norm, k micro-batches must equal one batch k times as large, up to rounding.
TEST(TrainingRules, AccumulationIsOneLargerBatch) {
  Recipe small = recipe_from(gpt_recipe(R"(, "accumulate": 4)", 0.0));
  small.data.shuffle = false;
  Recipe large = small;
  large.batch = small.batch * small.accumulate;
  large.accumulate = 1;
  const PlannedRun a = plan_run(small, "none"), b = plan_run(large, "none");
  const RunResult accumulated = train_plan(a.planned.plan, small, {.steps = 1}),
                  whole = train_plan(b.planned.plan, large, {.steps = 1});
  EXPECT_NEAR(accumulated.losses[0], whole.losses[0], 1e-6 * whole.losses[0]);
  EXPECT_NEAR(accumulated.gradient_norms[0], whole.gradient_norms[0], 1e-5f * whole.gradient_norms[0]);
  // Compares gradients tensor by tensor, relative to the norm of the tensor, because sums over 4 *
  // 3 * 19 rows are rounded.
  ASSERT_EQ(a.planned.plan.carried.size(), b.planned.plan.carried.size());
  for (size_t t = 0; t < a.planned.plan.carried.size(); ++t) {
    const Tensor& tensor = a.planned.plan.carried[t];
    const float* x = reinterpret_cast<const float*>(accumulated.gradients.data() + tensor.offset);
    const float* y = reinterpret_cast<const float*>(whole.gradients.data() + b.planned.plan.carried[t].offset);
    double difference = 0, norm = 0;
    for (uint64_t i = 0; i < tensor.elements(); ++i) {
      difference += (x[i] - y[i]) * static_cast<double>(x[i] - y[i]);
      norm += y[i] * static_cast<double>(y[i]);
    }
    EXPECT_LE(std::sqrt(difference), 2e-5 * std::sqrt(norm) + 1e-9) << a.planned.plan.carried_names[t];
  }
}

TEST(TrainingRules, FrozenWeightsStayAndCostNothing) {
  const Recipe all = recipe_from(resnet_recipe()),
               top = recipe_from(resnet_recipe(R"(, "freeze": ["conv1.*", "bn1.*", "layer1.*", "layer2.*"])"));
  const PlannedRun trained = plan_run(all, "none"), frozen = plan_run(top, "none");
  EXPECT_LT(frozen.planned.plan.arena_bytes, trained.planned.plan.arena_bytes);
  EXPECT_LT(frozen.planned.plan.programs[0].rows.size(), trained.planned.plan.programs[0].rows.size());
  const RunResult before = train_plan(frozen.planned.plan, top, {.steps = 0}),
                  after = train_plan(frozen.planned.plan, top, {.steps = 5});
  for (const char* name : {"conv1.weight", "bn1.weight", "layer1.1.conv2.weight", "layer2.0.downsample.1.bias"}) {
    EXPECT_EQ(state_values(frozen.planned.plan, before, name), state_values(frozen.planned.plan, after, name)) << name;
  }
  EXPECT_NE(state_values(frozen.planned.plan, before, "layer3.0.conv1.weight"),
            state_values(frozen.planned.plan, after, "layer3.0.conv1.weight"));
  const PlannedRun minimum = plan_run(top, "optimal", 0);
  EXPECT_TRUE(train_plan(minimum.planned.plan, top, {.steps = 5}).losses == after.losses);
}

size_t rows_of(const OwnedPlan& plan, const std::string& kernel) {
  const std::vector<Row>& rows = plan.programs[0].rows;
  return static_cast<size_t>(std::count_if(rows.begin(), rows.end(), [&](const Row& row) {
    return kernel_info(row.op, row.pass).name == kernel;
  }));
}

// Trains only biases (Cai et al. 2020, "TinyTL"). Batch-norms then use running statistics, and no
// weight has a gradient. So the plan must need less memory, and must lack the rows that compute
// statistics and the gradients of weights.
TEST(TrainingRules, BiasesAloneTrainByRunningStatistics) {
  const Recipe all = recipe_from(resnet_recipe()), biases = recipe_from(resnet_recipe(R"(, "freeze": ["*.weight"])"));
  const PlannedRun trained = plan_run(all, "none"), run = plan_run(biases, "none");
  const OwnedPlan& plan = run.planned.plan;
  EXPECT_LT(plan.arena_bytes, trained.planned.plan.arena_bytes);
  for (const char* kernel : {"batch_norm.statistics", "batch_norm.running", "batch_norm.backward", "norm_relu.backward",
                             "conv.backward_weight"}) {
    EXPECT_GT(rows_of(trained.planned.plan, kernel) + rows_of(trained.planned.plan, "norm_relu.backward"), 0u)
        << kernel;
    EXPECT_EQ(rows_of(plan, kernel), 0u) << kernel;
  }
  // All 13 norms except that of the stem, below which nothing is trained.
  EXPECT_EQ(rows_of(plan, "batch_norm.backward_data"), 12u);
  const RunResult before = train_plan(plan, biases, {.steps = 0}), after = train_plan(plan, biases, {.steps = 5});
  for (const StateTensor& state : plan.state) {
    const std::string name = state.name;
    if (name.ends_with(".weight") || name.ends_with("running_mean") || name.ends_with("running_var")) {
      EXPECT_EQ(state_values(plan, before, name), state_values(plan, after, name)) << name;
    }
    if (name.ends_with(".bias")) {
      EXPECT_NE(state_values(plan, before, name), state_values(plan, after, name)) << name;
    }
  }
  const PlannedRun minimum = plan_run(biases, "optimal", 0);
  EXPECT_TRUE(train_plan(minimum.planned.plan, biases, {.steps = 5}).losses == after.losses);
}

// With gradient release, a gradient needs no memory in Carried, unless two links add to it. The
// weights must be those of a run without release.
TEST(TrainingRules, GradientReleaseGivesTheSameWeights) {
  for (const bool gpt : {false, true}) {
    const auto text = [gpt](const std::string& extra) { return gpt ? gpt_recipe(extra) : resnet_recipe(extra); };
    const Recipe kept = recipe_from(text("")), released = recipe_from(text(R"(, "gradient_release": true)"));
    const PlannedRun a = plan_run(kept, "none"), b = plan_run(released, "optimal", 0);
    EXPECT_LT(b.planned.plan.carried_bytes, a.planned.plan.carried_bytes);
    // Only the gradient of the GPT's tied table is kept, because two links add to it.
    EXPECT_EQ(b.planned.plan.carried_bytes, gpt ? align_up(37 * 24 * 4) : 0u);
    const RunResult x = train_plan(a.planned.plan, kept, {.steps = 6}),
                    y = train_plan(b.planned.plan, released, {.steps = 6});
    EXPECT_EQ(x.losses, y.losses);
    EXPECT_EQ(x.gradient_norms, y.gradient_norms);
    EXPECT_TRUE(x.state == y.state);
  }
}

// Lion must learn, with the same bits under every schedule.
TEST(TrainingRules, LionLearnsUnderEverySchedule) {
  Recipe recipe = recipe_from(resnet_recipe());
  recipe.optimizer = {};
  recipe.optimizer.update = Op::kLion;
  recipe.optimizer.beta2 = 0.99;
  recipe.optimizer.lr = 0.001;
  const PlannedRun all = plan_run(recipe, "none"), minimum = plan_run(recipe, "optimal", 0);
  const RunResult result = train_plan(all.planned.plan, recipe, {.steps = 20});
  EXPECT_TRUE(train_plan(minimum.planned.plan, recipe, {.steps = 20}).state == result.state);
  EXPECT_LT(result.losses.back(), result.losses.front());
}

// An optimizer and its storage types. `like` is the name of the case with f32 storage whose loss
// this case must follow; "" for such a case itself.
struct SmallState {
  const char *name, *optimizer, *trained;
  const char* like = "";
};
constexpr SmallState kSmallStates[] = {
    {"AdamW", R"({"name": "adamw", "lr": 0.003})", "f32"},
    {"AdamW in bf16", R"({"name": "adamw", "lr": 0.003, "states": "bf16"})", "f32", "AdamW"},
    {"AdamW in codes", R"({"name": "adamw", "lr": 0.003, "states": "8bit"})", "f32", "AdamW"},
    {"AdamW in codes, weights in bf16", R"({"name": "adamw", "lr": 0.003, "states": "8bit"})", "bf16", "AdamW"},
    {"momentum", R"({"name": "sgd", "lr": 0.3, "momentum": 0.9})", "f32"},
    {"momentum in bf16", R"({"name": "sgd", "lr": 0.3, "momentum": 0.9, "states": "bf16"})", "bf16", "momentum"},
    {"Lion", R"({"name": "lion", "lr": 0.001})", "f32"},
    {"Lion in codes", R"({"name": "lion", "lr": 0.001, "states": "8bit"})", "bf16", "Lion"},
    {"Adafactor", R"({"name": "adafactor", "lr": 0.03})", "f32"},
    {"AdaLomo", R"({"name": "adalomo", "lr": 0.03})", "bf16", "Adafactor"},
    {"APOLLO", R"({"name": "apollo", "lr": 0.01, "rank": 4})", "f32"},
    {"APOLLO, weights in bf16", R"({"name": "apollo", "lr": 0.01, "rank": 4})", "bf16", "APOLLO"},
    {"APOLLO-Mini", R"({"name": "apollo_mini", "lr": 0.003})", "f32"},
    {"Muon", R"({"name": "muon", "lr": 0.02, "adamw_lr": 0.003})", "f32"},
    {"Muon in bf16", R"({"name": "muon", "lr": 0.02, "adamw_lr": 0.003, "states": "bf16"})", "bf16", "Muon"},
};

Recipe small_state_recipe(const SmallState& s, bool release) {
  nlohmann::json recipe = nlohmann::json::parse(gpt_recipe("", 0.1));
  recipe["model"].update({{"vocab_size", 96}, {"n_embd", 48}});  // the table has enough elements for 8-bit codes
  recipe["optimizer"] = nlohmann::json::parse(s.optimizer);
  recipe["trained"] = {{"storage", s.trained}};
  recipe["gradient_release"] = release || s.name == std::string("AdaLomo");
  return recipe_from(recipe.dump());
}

// Each case of kSmallStates must learn, with the same bits under every schedule, also with gradient
// release.
TEST(TrainingRules, SmallStatesLearnUnderEverySchedule) {
  std::map<std::string, double> falls;
  std::map<std::string, uint64_t> bytes;
  for (const SmallState& s : kSmallStates) {
    const Recipe kept = small_state_recipe(s, false), released = small_state_recipe(s, true);
    const PlannedRun all = plan_run(kept, "none"), minimum = plan_run(kept, "optimal", 0),
                     freed = plan_run(released, "optimal", 0);
    const RunResult result = train_plan(all.planned.plan, kept, {.steps = 30});
    EXPECT_TRUE(train_plan(minimum.planned.plan, kept, {.steps = 30}).state == result.state) << s.name;
    EXPECT_TRUE(train_plan(freed.planned.plan, released, {.steps = 30}).state == result.state)
        << s.name << ", released";
    falls[s.name] = result.losses.front() - result.losses.back();
    bytes[s.name] = all.planned.plan.state_bytes;
    if (*s.like == 0) {
      EXPECT_GT(falls[s.name], 0.05 * falls["AdamW"]) << s.name;
      EXPECT_LE(bytes[s.name], bytes["AdamW"]) << s.name;
    } else {
      EXPECT_NEAR(falls[s.name], falls[s.like], 0.05 * falls[s.like]) << s.name;
      EXPECT_LT(bytes[s.name], bytes[s.like]) << s.name;
    }
  }
}

// Returns the number of places, in the backwards of all tapes, at which a layer's dX directly
// precedes its dW.
int weights_after_data(const SolvedModel& model) {
  int count = 0;
  for (const LinkBody& link : model.bodies.links) {
    for (const TapeChoice& tape : link.tapes) {
      const std::vector<Call>& calls = tape.backward.calls;
      for (size_t c = 0; c + 1 < calls.size(); ++c) {
        count += calls[c].pass == Pass::kBackwardData && calls[c + 1].pass == Pass::kBackwardWeight &&
                 calls[c].arguments[1] == calls[c + 1].arguments[2];
      }
    }
  }
  return count;
}

// With gradient release, a wide layer's gradient is live from dW until its update, which must
// follow dX. So there it is cheaper to compute dW last. This choice must not change any bit.
TEST(TrainingRules, BackwardOrderIsChosenForItsMemoryAlone) {
  Recipe kept = recipe_from(resnet_recipe("", "bottleneck"));
  kept.batch = 2;
  Recipe released = kept;
  released.gradient_release = true;
  const PlannedRun minimum = plan_run(released, "optimal", 0);
  EXPECT_GT(weights_after_data(minimum.model), 0);
  for (const LinkBody& link : minimum.model.bodies.links) {
    const std::vector<std::vector<Call>> orders = backward_orders(link.backward);
    EXPECT_EQ(orders.front(), link.backward);
    for (const std::vector<Call>& order : orders)
      EXPECT_TRUE(std::is_permutation(order.begin(), order.end(), link.backward.begin(), link.backward.end()));
  }
  const PlannedRun all = plan_run(kept, "none");
  EXPECT_TRUE(train_plan(minimum.planned.plan, released, {.steps = 4}).state ==
              train_plan(all.planned.plan, kept, {.steps = 4}).state);
}

}  // namespace
}  // namespace reprise
