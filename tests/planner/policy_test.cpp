// Policies by value name: a pattern that names nothing is an error, not an empty policy.
// Here because a misspelt name would quietly recompute everything.
// It must not know schedules; same_bits_test trains under every policy.
#include "tools/graph/policy.h"

#include <gtest/gtest.h>

#include "tests/planner/deep_resnet.h"
#include "tests/faces/expect_user_error.h"
#include "tools/recipes/recipe_graph.h"

namespace reprise {
namespace {

TEST(Policy, EveryPatternMustNameAValue) {
  const Graph graph = build_model(deep_resnet({1, 1, 1, 1}));
  EXPECT_NO_THROW(require_names("names:*.conv1,layer2.0.relu1", graph, "net"));
  EXPECT_NO_THROW(require_names("dots", graph, "net"));
  expect_user_error([&] { require_names("names:*.conv1,*.conv9", graph, "net: schedule.policy"); }, {"net: schedule.policy", "*.conv9"});
  expect_user_error([&] { require_names("names:*.weight", graph, "net"); }, {"*.weight"});  // parameters are never recomputed
}

}  // namespace
}  // namespace reprise
