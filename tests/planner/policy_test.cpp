// Policies by value name: a pattern that names nothing is an error, not an empty policy.
// Here because a misspelt name would quietly recompute everything.
// It must not know schedules; same_bits_test trains under every policy.
#include "tools/graph/policy.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/planner/deep_resnet.h"
#include "tests/faces/expect_user_error.h"
#include "tools/graph/offload.h"
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

TEST(Policy, OffloadNamesBoundaries) {
  Graph graph = build_model(deep_resnet({1, 1, 1, 1}));
  const ChainBodies bodies = cut_into_links(graph);
  const auto starts = [&](const std::string& policy) { return offloaded_starts(policy, graph, bodies.links, "net: schedule.policy"); };
  std::vector<int> all(bodies.links.size());
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(starts("offload:*"), all);
  const auto name_of = [&](size_t link) { return graph.values[bodies.links[link].input].name; };
  EXPECT_EQ(starts("offload:" + name_of(3) + "," + name_of(2)), (std::vector<int>{0, 2, 3}));
  expect_user_error([&] { starts("offload:" + name_of(2) + ",*.conv1"); }, {"net: schedule.policy", "*.conv1", "names no boundary", name_of(1)});
  expect_user_error([&] { starts("offload:"); }, {"net: schedule.policy", name_of(1)});
  EXPECT_TRUE(is_offload("offload:x"));
  EXPECT_FALSE(is_offload("names:x"));
}

}  // namespace
}  // namespace reprise
