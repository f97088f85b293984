// Tests the nets of tools/recipes/small, planned for a small core. They must fit the required
// bytes, and the replay must accept their plans. DS-CNN, as a whole or in part, must train with the
// same bits in the smallest and in the largest memory. No other test trains with the small core's
// kernels on the host.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lib/check.h"
#include "ports/linux/linux_port.h"
#include "tests/judges/replay.h"
#include "tests/runtime/expect_same.h"
#include "tools/files/io/output_file.h"
#include "tools/plan/costs/backends.h"
#include "tools/plan/planning/weight_storage.h"

namespace reprise {
namespace {

using nlohmann::json;

// Returns the small recipe `name`, with the keys of `changes` added or replaced.
Recipe small_net(const std::string& name, const std::string& changes) {
  json recipe = json::parse(read_file("tools/recipes/small/" + name + ".json"), nullptr, true, true);
  recipe.update(json::parse(changes));
  return recipe_from(recipe.dump());
}

const char* const kPlain = R"({"optimizer": {"name": "sgd", "lr": 0.01}, "gradient_release": true})";

struct Asked {
  const char *net, *changes;
  uint64_t bytes;
};

TEST(SmallCore, NetsFitWhatWasAsked) {
  const Asked each[] = {
      {"resnet8", kPlain, 750000},
      {"ds-cnn", kPlain, 256 << 10},
      {"mobilenet-v2-0.35", kPlain, 4000000},
      {"mobilenet-v2-0.35",
       R"({"optimizer": {"name": "sgd", "lr": 0.01}, "gradient_release": true, "dtype": "bf16", "trained": {"storage": "bf16"}})",
       2200000}};
  for (const Asked& asked : each) {
    SCOPED_TRACE(asked.net);
    Recipe recipe = small_net(asked.net, asked.changes);
    recipe.budget_bytes = asked.bytes;
    const SolvedModel model = solve_model(recipe);
    const PlannedModel planned = plan_model(model, request_of(model));
    ASSERT_TRUE(planned.fits) << "the least is " << planned.smallest_budget_bytes;
    const Plan plan = planned.plan.view();
    std::vector<CheckMark> marks(check_marks(plan));
    EXPECT_EQ(check(plan, marks.data(), backend_of(recipe)).fault, Fault::kNone);
    const testing::ReplayVerdict verdict =
        testing::Replay(build_stored_model(recipe, backend_of(recipe)), recipe).judge(plan);
    EXPECT_TRUE(verdict.ok) << verdict.text();
  }
}

TEST(SmallCore, ActivationsOfResNet18FitWhatWasAsked) {
  const Recipe recipe =
      small_net("resnet18-cifar",
                R"({"optimizer": {"name": "sgd", "lr": 0.01}, "dtype": "bf16", "feature_map_budget": 737719})");
  const SolvedModel model = solve_model(recipe);
  const PlannedModel planned = plan_model(model, request_of(model));
  ASSERT_TRUE(planned.fits) << "the least is " << planned.smallest_budget_bytes;
  EXPECT_LE(planned.extra_forward_cost, 0.5);
}

// A training of DS-CNN, as a whole or in part. `trained` is the name of a weight that must change,
// and `frozen` that of a weight that must not change; null if all weights are trained or the case
// checks none.
struct Part {
  const char *name, *changes, *trained, *frozen;
};

TEST(SmallCore, TrainsAllOrAPartWithTheSameBits) {
  Backend backend;
  ASSERT_TRUE(linux_port().open_backend("cpu-small", &backend).ok());
  const Part parts[] = {
      {"all", "{}", "conv1.weight", nullptr},
      {"released", kPlain, "conv1.weight", nullptr},
      {"head", R"({"freeze": ["conv1.*", "bn1.*", "block*"]})", "fc.weight", "block4.pointwise.weight"},
      {"biases", R"({"freeze": ["*conv*.weight", "block*.weight", "bn*.weight"]})", "bn1.bias", "conv1.weight"},
      {"sparse",
       R"({"freeze": ["conv1.*", "bn1.*", "block[12].*", "block1.*", "block2.*", "block?.depthwise.weight"]})",
       "block3.pointwise.weight", "block3.depthwise.weight"},
      {"accumulated", R"({"accumulate": 3})", "conv1.weight", nullptr},
      {"eight_bits", R"({"optimizer": {"name": "adamw", "lr": 0.001, "states": "8bit"}})", "conv1.weight", nullptr},
      {"bf16", R"({"dtype": "bf16", "trained": {"storage": "bf16"}})", "bn1.bias", nullptr},
  };
  for (const Part& part : parts) {
    SCOPED_TRACE(part.name);
    const Recipe recipe = small_net("ds-cnn", part.changes);
    const PlannedRun whole = plan_run(recipe, "none"), minimum = plan_run(recipe, "optimal", 0);
    EXPECT_LE(minimum.planned.plan.arena_bytes, whole.planned.plan.arena_bytes);
    EXPECT_EQ(std::string(whole.planned.plan.backend), "cpu-small");
    const RunResult one = train_plan(whole.planned.plan, recipe, {.steps = 1, .backend = &backend});
    const RunResult expected = train_plan(whole.planned.plan, recipe, {.steps = 4, .backend = &backend});
    expect_same(expected,
                train_plan(minimum.planned.plan, recipe,
                           {.steps = 4, .workers = 2, .poison = true, .backend = &backend}),
                part.name);
    EXPECT_NE(state_values(whole.planned.plan, one, part.trained),
              state_values(whole.planned.plan, expected, part.trained));
    if (part.frozen == nullptr) continue;
    EXPECT_EQ(state_values(whole.planned.plan, one, part.frozen),
              state_values(whole.planned.plan, expected, part.frozen));
  }
}

}  // namespace
}  // namespace reprise
