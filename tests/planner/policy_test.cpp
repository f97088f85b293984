// Tests policies that select values by name. A pattern without a match must be an error: otherwise
// a misspelt name would recompute everything without a message. No schedules are made here;
// same_bits_test trains under every policy.
#include "tools/plan/graph/policy.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/planner/deep_resnet.h"
#include "tests/interfaces/expect_user_error.h"
#include "tools/plan/graph/offload.h"
#include "tools/plan/recipes/recipe_graph.h"

namespace reprise {
namespace {

TEST(Policy, EveryPatternMustNameAValue) {
  const Graph graph = build_model(deep_resnet({1, 1, 1, 1}));
  EXPECT_NO_THROW(require_names("names:*.conv1,layer2.0.relu1", graph, "net"));
  EXPECT_NO_THROW(require_names("dots", graph, "net"));
  expect_user_error([&] { require_names("names:*.conv1,*.conv9", graph, "net: schedule.policy"); },
                    {"net: schedule.policy", "*.conv9"});
  // A policy cannot name parameters, because they are never recomputed.
  expect_user_error([&] { require_names("names:*.weight", graph, "net"); }, {"*.weight"});
}

TEST(Policy, OffloadNamesBoundaries) {
  Graph graph = build_model(deep_resnet({1, 1, 1, 1}));
  const ChainBodies bodies = cut_into_links(graph);
  const auto starts = [&](const std::string& policy) {
    return offloaded_starts(policy, graph, bodies.links, "net: schedule.policy");
  };
  std::vector<int> all(bodies.links.size());
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(starts("offload:*"), all);
  const auto name_of = [&](size_t link) { return graph.values[bodies.links[link].input].name; };
  EXPECT_EQ(starts("offload:" + name_of(3) + "," + name_of(2)), (std::vector<int>{0, 2, 3}));
  expect_user_error([&] { starts("offload:" + name_of(2) + ",*.conv1"); },
                    {"net: schedule.policy", "*.conv1", "names no boundary", name_of(1)});
  expect_user_error([&] { starts("offload:"); }, {"net: schedule.policy", name_of(1)});
  EXPECT_TRUE(is_offload("offload:x"));
  EXPECT_FALSE(is_offload("names:x"));
}

}  // namespace
}  // namespace reprise
