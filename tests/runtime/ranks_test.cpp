// A plan for several ranks has the bits of one process that accumulates as many micro-batches, whatever the ranks' number, and each rank's memory is as
// planned. The ranks are threads here (thread_peers.h).
#include <gtest/gtest.h>

#include <thread>

#include "tests/runtime/expect_same.h"
#include "tests/runtime/thread_peers.h"

namespace reprise {
namespace {

struct Case {
  const char* name;
  std::string (*recipe)(const std::string& extra);
  const char* extra;
  bool alike_without = true;  // a recipe that accumulates without a word of ranks has the same bits
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::string resnet(const std::string& extra) { return resnet_recipe(extra); }
std::string bottleneck(const std::string& extra) { return resnet_recipe(extra, "bottleneck"); }
std::string gpt(const std::string& extra) { return gpt_recipe(extra); }

constexpr Case kCases[] = {{"resnet", resnet, ""},
                           {"resnet_bf16", resnet, R"(, "dtype": "bf16")"},
                           {"bottleneck_clipped", bottleneck, R"(, "clip_norm": 1.0)"},
                           {"gpt", gpt, "", false},
                           {"gpt_bf16", gpt, R"(, "dtype": "bf16", "clip_norm": 0.5)", false},
                           {"gpt_adapters", gpt, R"(, "lora": {"r": 2, "dropout": 0.1})"},
                           {"gpt_dora_bf16", gpt, R"(, "dtype": "bf16", "lora": {"r": 3, "dora": true})"},
                           {"gpt_stored_as_bf16", gpt, R"(, "trained": {"storage": "bf16"})", false},
                           {"gpt_frozen_embedding", gpt, R"(, "freeze": ["*wte*", "*wpe*"])"}};

Recipe recipe_of(const Case& c, int accumulate, int ranks) {
  std::string extra = std::string(c.extra) + ", \"accumulate\": " + std::to_string(accumulate);
  if (ranks > 0) extra += ", \"parallel\": {\"ranks\": " + std::to_string(ranks) + "}";
  return recipe_from(c.recipe(extra));
}

constexpr int kSteps = 3;

RunResult train_alone(const Recipe& recipe) { return train_plan(plan_run(recipe, "none").planned.plan, recipe, {.steps = kSteps}); }

struct Trained {
  std::vector<RunResult> ranks;
  uint64_t sent_bytes = 0;
};

// `shares`: of each rank's memory, in turn; negative: all that it wants.
Trained train_ranks(const Recipe& recipe, const std::vector<double>& shares) {
  ThreadPeers peers(static_cast<uint32_t>(recipe.ranks()));
  Trained trained;
  trained.ranks.resize(static_cast<size_t>(recipe.ranks()));
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < trained.ranks.size(); ++r) {
    threads.emplace_back([&, r] {
      const double share = shares[r % shares.size()];
      const OwnedPlan plan = plan_run(recipe, share < 0 ? "none" : "optimal", share).planned.plan;
      trained.ranks[r] = train_plan(plan, recipe, {.steps = kSteps, .workers = 0, .peers = peers.of(r)});
    });
  }
  for (std::thread& thread : threads) thread.join();
  trained.sent_bytes = peers.sent_bytes();
  return trained;
}

class Ranks : public ::testing::TestWithParam<Case> {};

TEST_P(Ranks, HaveTheBitsOfOne) {
  constexpr int kMicroBatches = 4;
  const RunResult one = train_alone(recipe_of(GetParam(), kMicroBatches, 1));
  if (GetParam().alike_without) expect_same(train_alone(recipe_of(GetParam(), kMicroBatches, 0)), one, "without a word of ranks");
  for (const int ranks : {2, 4}) {
    const Trained trained = train_ranks(recipe_of(GetParam(), kMicroBatches / ranks, ranks), {-1});
    for (int r = 0; r < ranks; ++r) {
      expect_same(one, trained.ranks[static_cast<size_t>(r)], "rank " + std::to_string(r) + " of " + std::to_string(ranks));
    }
    EXPECT_GT(trained.sent_bytes, 0u);
  }
}

// A smaller board computes more again.
TEST_P(Ranks, MayHaveBudgetsOfTheirOwn) {
  const RunResult one = train_alone(recipe_of(GetParam(), 3, 1));
  const Trained trained = train_ranks(recipe_of(GetParam(), 1, 3), {0, -1, 0.3});
  for (size_t r = 0; r < 3; ++r) {
    const RunResult& rank = trained.ranks[r];
    EXPECT_EQ(rank.losses, one.losses);
    EXPECT_TRUE(rank.state == one.state) << "rank " << r;
    EXPECT_EQ(rank.planned_bytes, rank.measured_bytes) << "rank " << r;
  }
  EXPECT_LT(trained.ranks[0].planned_bytes, trained.ranks[1].planned_bytes);
}

TEST(RanksTogether, ALostRankEndsTheOthers) {
  const Recipe recipe = recipe_of(kCases[0], 1, 2);
  const OwnedPlan plan = plan_run(recipe, "none").planned.plan;
  ThreadPeers peers(2);
  std::string said;
  std::thread first([&] {
    try {
      train_plan(plan, recipe, {.steps = kSteps, .workers = 0, .peers = peers.of(0)});
    } catch (const std::runtime_error& error) {
      said = error.what();
    }
  });
  peers.lose(1);
  first.join();
  EXPECT_EQ(said, "train_step: a rank has ended");
}

TEST(RanksTogether, APlanWantsAsManyPeersAsItHasRanks) {
  const Recipe recipe = recipe_of(kCases[0], 1, 2);
  const OwnedPlan plan = plan_run(recipe, "none").planned.plan;
  const auto bound = [&](const Peers& peers) {
    try {
      train_plan(plan, recipe, {.steps = 0, .workers = 0, .peers = peers});
    } catch (const std::runtime_error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  ThreadPeers two(2), three(3);
  EXPECT_EQ(bound(two.of(0)), "");
  EXPECT_EQ(bound(three.of(0)), "bind: the plan is for so many ranks: bind needs Peers of as many");
  EXPECT_EQ(bound({}), "bind: the plan is for so many ranks: bind needs Peers of as many");
}

INSTANTIATE_TEST_SUITE_P(Nets, Ranks, ::testing::ValuesIn(kCases), [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace reprise
