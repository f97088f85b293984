// Tests the choices that links offer to the schedule: residues that many links have in common, and
// budgets at which the net of Chen et al. can be planned. A mode that no link needs costs planning
// time, and a missing mode makes every plan worse.
#include "tools/plan/graph/link.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/planner/deep_resnet.h"
#include "tools/plan/audit/manifest.h"
#include "tools/plan/recipes/recipe_graph.h"
#include "tools/plan/schedule/schedule.h"
#include "tools/plan/writing/summary.h"

namespace reprise {
namespace {

struct DeepResNet {
  Graph graph;
  ChainBodies bodies;
  Chain chain;

  explicit DeepResNet(const CallPrice& price = convolution_flops) {
    graph = build_model(deep_resnet(kDeepUnits));
    bodies = cut_into_links(graph);
    solve_links(graph, bodies.links, kNoScratch, price);
    chain = chain_of(graph, bodies.links);
  }

  std::vector<std::string> kept(const ResidueChoice& residue) const {
    std::vector<std::string> names;
    for (const ValueId v : residue.kept) names.push_back(graph.values[v].name);
    return names;
  }
};

// Requires that links of the two long stages offer the outputs of the two narrow convolutions as a
// residue. These are a sixth of the values of a bottleneck unit and cost three quarters of its
// flops.
void expect_narrow_convolutions(const DeepResNet& net) {
  for (const std::string name : {"layer2.60", "layer3.90"}) {
    const std::vector<LinkBody>& links = net.bodies.links;
    const auto link = std::find_if(links.begin(), links.end(), [&](const LinkBody& body) { return body.name == name; });
    ASSERT_NE(link, links.end()) << name;
    const std::vector<std::string> wanted = {name + ".conv1", name + ".conv2"};
    const bool found = std::any_of(link->residues.begin(), link->residues.end(),
                                   [&](const ResidueChoice& r) { return net.kept(r) == wanted; });
    EXPECT_TRUE(found) << name;
  }
}

TEST(Residues, NarrowConvolutionsInTheLongStages) { expect_narrow_convolutions(DeepResNet()); }

// In a profile, calls with equal flops have different prices, and rare links have many different
// prices. The links of the two long stages must still offer the outputs of the two narrow
// convolutions as a residue.
TEST(Residues, NarrowConvolutionsAtMeasuredPrices) {
  for (uint64_t profile = 1; profile <= 8; ++profile) {
    SCOPED_TRACE(profile);
    expect_narrow_convolutions(DeepResNet([profile](const Graph& graph, const Call& call) {
      std::mt19937_64 random(profile);
      for (const ValueId v : call.arguments) {
        if (v == kNoValue) continue;
        for (const uint32_t d : graph.tensor(v).shape) random.seed(random() ^ d);
      }
      return convolution_flops(graph, call) * std::uniform_real_distribution(0.6, 1.0)(random);
    }));
  }
}

// In an attention with norms of heads and with an adapter with dropout on every layer, a link has
// more values than can be tried in every combination. It must be reported as truncated.
TEST(Links, OneOfMoreValuesThanAreTriedIsCalledTruncated) {
  for (const bool dropout : {false, true}) {
    const Recipe recipe = parse_recipe(
        std::string(
            R"({"name": "some", "model": {"family": "qwen3", "vocab_size": 50, "hidden_size": 24, "intermediate_size": 40, "head_dim": 8,
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}, "data": {"kind": "synthetic"},
        "batch": 2, "sequence": 16, "lora": {"r": 2, "dropout": )") +
            (dropout ? "0.1" : "0") + "}}",
        "some.json", "/");
    const SolvedModel model = solve_model(recipe);
    const PlannedModel planned = plan_model(model, request_of(model));
    const size_t truncated = truncated_links(model.bodies.links);
    EXPECT_EQ(truncated, dropout ? 3u : 0u);
    EXPECT_EQ(manifest_of(model, planned)["truncated"], truncated);
    const std::string summary = summary_of(model, planned);
    EXPECT_EQ(summary.find("truncated       3 of 8 links may keep more values than the 12") != std::string::npos,
              dropout)
        << summary;
    for (const LinkBody& link : model.bodies.links) {
      if (!link.truncated) continue;
      EXPECT_TRUE(link.name.ends_with(".attn")) << link.name;
      const std::vector<ValueId>& all = link.tapes[0].kept;
      ASSERT_GT(all.size(), kMaxCandidates);
      const auto bytes = [&](ValueId v) { return model.graph.tensor(v).bytes; };
      const ValueId smallest =
          *std::min_element(all.begin(), all.end(), [&](ValueId a, ValueId b) { return bytes(a) < bytes(b); });
      for (const TapeChoice& tape : link.tapes)
        EXPECT_NE(std::find(tape.kept.begin(), tape.kept.end(), smallest), tape.kept.end());
    }
  }
}

// A value that is both in a tape and in a residue must be counted once.
TEST(Residues, SharedValuesCountOnce) {
  const DeepResNet net;
  int shared = 0;
  for (size_t i = 0; i < net.bodies.links.size(); ++i) {
    const LinkBody& body = net.bodies.links[i];
    for (size_t k = 0; k < body.residues.size(); ++k) {
      for (size_t t = 0; t < body.tapes.size(); ++t) {
        std::set<ValueId> values(body.tapes[t].kept.begin(), body.tapes[t].kept.end());
        values.insert(body.residues[k].kept.begin(), body.residues[k].kept.end());
        if (body.output != kNoValue) values.insert(body.output);
        uint64_t bytes = 0;
        for (const ValueId v : values) bytes += net.graph.tensor(v).bytes;
        EXPECT_EQ(net.chain.links[i].residues[k].tape_bytes[t], bytes) << body.name;
        shared += t > 0 && bytes < body.tapes[t].bytes + body.residues[k].bytes;
      }
    }
  }
  EXPECT_GT(shared, 100);
}

// With more memory a strategy must not be slower, because the schedule for the smaller budget also
// fits.
TEST(Strategies, MoreMemoryNeverCostsTimeOnRealChains) {
  for (const char* file : {"resnet20-fashion.json", "gpt-text.json"}) {
    const auto folder = std::filesystem::path(__FILE__).parent_path() / "../../tools/recipes";
    Graph graph = build_model(read_recipe((folder / file).string()));
    ChainBodies bodies = cut_into_links(graph);
    solve_links(graph, bodies.links, kNoScratch, convolution_flops);
    const Chain chain = chain_of(graph, bodies.links);
    const uint64_t maximum = make_schedule(chain, {.strategy = "none"}).peak_bytes;
    for (const std::string& name : strategy_names()) {
      // These two strategies would take most of the time; plan_bench tests them on complete plans.
      if (name == "optimal" || name == "h-revolve") continue;
      double before = INFINITY;
      for (uint64_t memory = maximum / 50; memory <= maximum; memory += maximum / 200) {
        const Schedule plan = make_schedule(chain, {.strategy = name, .memory_bytes = memory});
        ASSERT_TRUE(plan.feasible || before == INFINITY) << file << ", " << name << ", M = " << memory;
        if (!plan.feasible) continue;
        ASSERT_LE(plan.makespan, before) << file << ", " << name << ", M = " << memory;
        before = plan.makespan;
      }
    }
  }
}

// Tests the numbers of PLANNING 5: extra work at a budget, in whole per cent of a step's forward
// and backward.
TEST(Residues, FiguresOfTheDeepResNet) {
  const DeepResNet net;
  double forward_backward = 0;
  for (const Link& link : net.chain.links) forward_backward += link.forward_cost + link.tapes[0].backward_cost;
  for (const auto& [gib, percent] : {std::pair{1.2, 34.0}, {3.0, 18.0}, {5.3, 10.0}, {7.0, 7.0}}) {
    const auto memory = static_cast<uint64_t>(gib * 1073741824);
    const Schedule plan = make_schedule(net.chain, {.memory_bytes = memory});
    ASSERT_TRUE(plan.feasible) << gib;
    EXPECT_LE(plan.peak_bytes, memory) << gib;
    std::printf("%.2f GiB: +%.2f%%\n", gib, 100 * (plan.makespan / forward_backward - 1));
    EXPECT_LT(100 * (plan.makespan / forward_backward - 1), percent + 0.5) << gib;
  }
}

}  // namespace
}  // namespace reprise
