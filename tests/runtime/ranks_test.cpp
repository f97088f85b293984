// Tests plans for several ranks. With any number of ranks, the bits must be those of one process
// that accumulates as many micro-batches. Each rank must use the planned memory. In this test the
// ranks are threads (thread_peers.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>

#include "tests/interfaces/expect_user_error.h"
#include "tests/runtime/expect_same.h"
#include "tests/runtime/fake_disk.h"
#include "tests/runtime/thread_peers.h"
#include "tools/run/snapshots/initial_weights.h"

namespace reprise {
namespace {

struct Case {
  const char* name;
  std::string (*recipe)(const std::string& extra);
  const char* extra;
  bool alike_without = true;  // true: the bits are also those of a recipe without "parallel"
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

Recipe recipe_of(const Case& c, int accumulate, int ranks, const char* order = "flat") {
  std::string extra = std::string(c.extra) + ", \"accumulate\": " + std::to_string(accumulate);
  if (ranks > 0) extra += ", \"parallel\": {\"ranks\": " + std::to_string(ranks) + ", \"order\": \"" + order + "\"}";
  return recipe_from(c.recipe(extra));
}

constexpr int kSteps = 3;

RunResult train_alone(const Recipe& recipe) {
  return train_plan(plan_run(recipe, "none").planned.plan, recipe, {.steps = kSteps});
}

struct Trained {
  std::vector<RunResult> ranks;
  uint64_t sent_bytes = 0;
};

// Trains all ranks. `shares` are the positions of the ranks' budgets, as in plan_run(). If there
// are fewer shares than ranks, they are used in turn. Negative: no budget.
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
  if (GetParam().alike_without)
    expect_same(train_alone(recipe_of(GetParam(), kMicroBatches, 0)), one, "without a word of ranks");
  const auto expect_ranks_alike = [](int ranks, int accumulate, const RunResult& alone) {
    const Trained trained = train_ranks(recipe_of(GetParam(), accumulate, ranks), {-1});
    for (int r = 0; r < ranks; ++r) {
      expect_same(alone, trained.ranks[static_cast<size_t>(r)],
                  "rank " + std::to_string(r) + " of " + std::to_string(ranks));
    }
    EXPECT_GT(trained.sent_bytes, 0u);
  };
  for (const int ranks : {2, 4}) expect_ranks_alike(ranks, kMicroBatches / ranks, one);
  expect_ranks_alike(2, 3, train_alone(recipe_of(GetParam(), 6, 1)));
}

// Each rank may have a budget of its own. A rank with less memory recomputes more, but all must
// have the same bits.
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

// In the two-level order, the bits depend only on the number of ranks and of micro-batches. With
// one micro-batch in each rank they must be those of the flat order. Gradients are sent once per
// step, so fewer bytes are sent than in the flat order.
TEST_P(Ranks, AddTheirOwnFirst) {
  const RunResult flat = train_ranks(recipe_of(GetParam(), 1, 3), {-1}).ranks[0];
  expect_same(flat, train_ranks(recipe_of(GetParam(), 1, 3, "two-level"), {-1}).ranks[1], "one micro-batch each");
  for (const int accumulate : {2, 3}) {
    const Recipe recipe = recipe_of(GetParam(), accumulate, 2, "two-level");
    const Trained alike = train_ranks(recipe, {-1}), others = train_ranks(recipe, {0, 0.4});
    for (size_t r = 0; r < 2; ++r) {
      EXPECT_EQ(others.ranks[r].losses, alike.ranks[0].losses);
      EXPECT_TRUE(others.ranks[r].state == alike.ranks[0].state) << "rank " << r;
      EXPECT_EQ(others.ranks[r].planned_bytes, others.ranks[r].measured_bytes) << "rank " << r;
    }
    EXPECT_EQ(alike.ranks[0].losses.front(), train_alone(recipe_of(GetParam(), 2 * accumulate, 1)).losses.front());
    EXPECT_LT(alike.sent_bytes, train_ranks(recipe_of(GetParam(), accumulate, 2), {-1}).sent_bytes);
  }
}

// With shards of the optimizer, each moment is stored by only one rank. Results must be those of
// one process, in a smaller arena.
TEST(RanksTogether, KeepMomentsAmongThem) {
  struct Kept {
    const char *optimizer, *more;
  };
  for (const auto& [optimizer, more] :
       {Kept{R"("adamw", "lr": 0.01)", ""},
        {R"("adamw", "lr": 0.01, "states": "8bit")", R"(, "trained": {"storage": "bf16"})"},
        {R"("lion", "lr": 0.001, "states": "bf16")", R"(, "clip_norm": 0.5)"},
        {R"("adafactor", "lr": 0.01)", ""},
        {R"("muon", "lr": 0.01)", ""}}) {
    const auto recipe = [&](int accumulate, int ranks, const char* shards) {
      return recipe_from(
          R"({"name": "keepers", "model": {"family": "gpt2", "vocab_size": 200, "n_positions": 16, "n_embd": 64, "n_layer": 2, "n_head": 2},
        "data": {"kind": "synthetic"}, "batch": 2, "seed": 3, "optimizer": {"name": )" +
          std::string(optimizer) + "}" + more + R"(, "accumulate": )" + std::to_string(accumulate) +
          R"(, "parallel": {"ranks": )" + std::to_string(ranks) + R"(, "shard_optimizer": )" + shards + "}}");
    };
    const OwnedPlan alone = plan_run(recipe(6, 1, "true"), "none").planned.plan;
    const RunResult one = train_plan(alone, recipe(6, 1, "true"), {.steps = kSteps});
    for (const int ranks : {2, 3}) {
      SCOPED_TRACE(optimizer + std::string(", ranks: ") + std::to_string(ranks));
      const OwnedPlan plan = plan_run(recipe(6 / ranks, ranks, "true"), "none").planned.plan,
                      whole = plan_run(recipe(6 / ranks, ranks, "false"), "none").planned.plan;
      EXPECT_LT(plan.arena_bytes, whole.arena_bytes);
      const Trained trained = train_ranks(recipe(6 / ranks, ranks, "true"), {-1});
      std::set<uint32_t> owners;
      for (uint32_t i = 0; i < plan.state.size(); ++i) {
        const StateTensor &state = plan.state[i], &same = alone.state[i];
        ASSERT_STREQ(state.name, same.name);
        if (state.owner != kEveryRank) owners.insert(state.owner);
        for (uint32_t r = 0; r < trained.ranks.size(); ++r) {
          const auto begins = [&](const RunResult& run, const StateTensor& at) {
            return run.state.begin() + static_cast<std::ptrdiff_t>(at.tensor.offset);
          };
          const bool is_here = state.owner == kEveryRank || state.owner == r;
          EXPECT_TRUE(!is_here || std::equal(begins(one, same),
                                             begins(one, same) + static_cast<std::ptrdiff_t>(same.tensor.used_bytes()),
                                             begins(trained.ranks[r], state)))
              << state.name << " of rank " << r;
        }
      }
      EXPECT_EQ(owners.size(), static_cast<size_t>(ranks));
      for (const RunResult& rank : train_ranks(recipe(6 / ranks, ranks, "true"), {0, -1, 0.5}).ranks)
        EXPECT_EQ(rank.losses, one.losses) << "budgets of their own";
      for (const RunResult& rank : trained.ranks) {
        EXPECT_EQ(rank.losses, one.losses);
        EXPECT_EQ(rank.evaluation.loss, one.evaluation.loss);
        EXPECT_EQ(rank.planned_bytes, rank.measured_bytes);
      }
    }
  }
}

// Returns a recipe for `ranks` ranks, with adapters and with frozen weights that are streamed.
Recipe streaming_recipe(int accumulate, int ranks, const std::string& more = "",
                        const std::string& weights = R"("stream": true)") {
  return recipe_from(
      R"({"name": "slices", "model": {"family": "llama", "vocab_size": 96, "hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0}, "init": "random",
    "data": {"kind": "synthetic"}, "batch": 2, "sequence": 12, "seed": 7, "lora": {"r": 2}, "optimizer": {"name": "adamw", "lr": 0.01},
    "weights": {)" +
      weights + R"(}, "accumulate": )" + std::to_string(accumulate) + R"(, "parallel": {"ranks": )" +
      std::to_string(ranks) + more + "}}");
}

std::vector<unsigned char> file_of_weights(const Plan& plan) {
  const TemporaryFolder folder;
  OutputFile out(folder.file("weights"));
  write_streamed_weights(plan, {}, nullptr, {}, out);
  out.finish();
  std::vector<unsigned char> bytes(plan.streamed_bytes);
  InputFile(folder.file("weights")).read(0, bytes.data(), bytes.size());
  return bytes;
}

// With shards of frozen weights, each rank stores slices of the streamed weights after its State.
// Results must be those of one process that reads them from a file.
TEST(RanksTogether, HoldStreamedWeightsAmongThem) {
  for (const char* weights : {R"("stream": true)", R"("stream": true, "embedding": "from_file")"}) {
    for (const auto& [ranks, accumulate] : {std::pair{2, 2}, {4, 1}, {3, 2}}) {
      SCOPED_TRACE(std::string(weights) + ", " + std::to_string(ranks) + " ranks");
      const Recipe alone = streaming_recipe(ranks * accumulate, 1, "", weights),
                   recipe = streaming_recipe(accumulate, ranks, R"(, "shard_weights": true)", weights);
      const OwnedPlan read = plan_run(alone, "none").planned.plan, plan = plan_run(recipe, "none").planned.plan;
      FakeDisk file(file_of_weights(read.view()), true);
      const RunResult one = train_plan(read, alone, {.steps = kSteps, .weights = file.table()});
      EXPECT_EQ(plan.shard_bytes * static_cast<uint64_t>(ranks), plan.streamed_bytes);
      EXPECT_EQ(plan.state_bytes, read.state_bytes + plan.shard_bytes);
      ThreadPeers peers(static_cast<uint32_t>(ranks));
      std::vector<RunResult> results(static_cast<size_t>(ranks));
      std::vector<std::thread> threads;
      const std::vector<unsigned char> content = file_of_weights(plan.view());
      for (uint32_t r = 0; r < results.size(); ++r) {
        threads.emplace_back([&, r] {
          FakeDisk own(content, true);
          results[r] =
              train_plan(plan, recipe, {.steps = kSteps, .workers = 0, .weights = own.table(), .peers = peers.of(r)});
        });
      }
      for (std::thread& thread : threads) thread.join();
      for (RunResult& rank : results) {
        rank.state.resize(read.state_bytes);
        expect_same(one, rank, "a rank");
      }
    }
  }
}

TEST(RanksTogether, HoldWhatIsStreamedAndNothingElse) {
  expect_user_error([] { (void)streaming_recipe(1, 2, R"(, "shard_weights": true)", ""); },
                    {"parallel.shard_weights", "needs weights.stream"});
  expect_user_error([] { (void)recipe_of(kCases[0], 1, 2, "sorted"); }, {"parallel.order", "two-level"});
}

// Gives tokens of which one is out of range, in the micro-batch of rank 1.
Status fill_with_a_bad_token(void*, uint64_t, uint32_t micro, BatchSink& sink) {
  std::vector<int32_t> tokens(sink.label_count(), 0);
  const std::vector<int32_t> labels(tokens);
  if (micro == 1) tokens[3] = 1 << 20;
  sink.add(tokens.data(), tokens.size() * sizeof(int32_t), labels.data(), labels.size());
  return ok_status();
}

TEST(RanksTogether, WhatOneFindsWrongAllSkip) {
  for (const char* order : {"flat", "two-level"}) {
    const Recipe recipe = recipe_of(kCases[3], 2, 2, order);
    const OwnedPlan plan = plan_run(recipe, "none").planned.plan;
    ThreadPeers peers(2);
    std::vector<std::string> said(2);
    std::vector<std::thread> threads;
    for (uint32_t r = 0; r < 2; ++r) {
      threads.emplace_back([&, r] {
        try {
          train_plan(plan, {nullptr, fill_with_a_bad_token}, {.steps = 1, .workers = 0, .peers = peers.of(r)});
        } catch (const std::runtime_error& error) {
          said[r] = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& words : said)
      EXPECT_EQ(words,
                "train_step: a token must be at least 0 and less than the vocabulary size (at position 3 of the "
                "micro-batch); rank 1 has found it");
  }
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
  EXPECT_EQ(said, "train_step: a rank has ended (rank 1)");
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

INSTANTIATE_TEST_SUITE_P(Nets, Ranks, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace reprise
