// Tests where graphs are cut: every shipped recipe as in the papers of its family, nets of no
// family, and random graphs by the definition of the rule. A missed cut costs memory, and a wrong
// cut gives a wrong plan.
#include "tools/plan/graph/cuts.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "lib/check.h"
#include "tests/planner/deep_resnet.h"
#include "tests/planner/random_graph.h"
#include "tests/planner/unet.h"
#include "tests/runtime/squeeze_network.h"
#include "tools/plan/costs/backends.h"
#include "tools/plan/graph/link.h"
#include "tools/plan/graph/rules.h"
#include "tools/plan/planning/planner.h"
#include "tools/plan/recipes/recipe_graph.h"

namespace reprise {
namespace {

using Names = std::vector<std::string>;

Names names_of(const Graph& graph, const std::vector<ValueId>& values) {
  Names names;
  for (const ValueId v : values) names.push_back(graph.values[v].name);
  return names;
}
Names cuts_of(const Graph& graph) { return names_of(graph, find_cuts(graph)); }

// Returns the names of the values at which a model must be cut. A ResNet is cut after its stem and
// after each unit. A transformer is cut after its embedding and after each half of a block.
Names expected(const ResNetModel& model) {
  Names names = {model.stem == ResNetModel::Stem::kImagenet ? "maxpool" : "relu"};
  for (size_t stage = 0; stage < model.units.size(); ++stage) {
    for (int unit = 0; unit < model.units[stage]; ++unit)
      names.push_back("layer" + std::to_string(stage + 1) + "." + std::to_string(unit));
  }
  return names;
}
Names halves(const std::string& embedding, const std::string& block, int layers) {
  Names names = {embedding};
  for (int layer = 0; layer < layers; ++layer) {
    for (const char* half : {".attn", ".mlp"}) names.push_back(block + std::to_string(layer) + half);
  }
  return names;
}
Names expected(const Gpt2Model& model) {
  return halves(model.embd_pdrop > 0 ? "transformer.drop" : "transformer.wte", "transformer.h.", model.n_layer);
}
Names expected(const DecoderModel& model) {
  return halves("model.embed_tokens", "model.layers.", model.num_hidden_layers);
}
// No shipped recipe is a net of this kind. If there is one, return its cuts here.
Names expected(const NetModel&) { return {}; }

void expect_family_cuts(const Recipe& recipe) {
  SCOPED_TRACE(recipe.name);
  const Graph graph = build_model(recipe);
  EXPECT_EQ(names_of(graph, graph.boundaries),
            std::visit([](const auto& model) { return expected(model); }, recipe.model));
}

TEST(Cuts, EveryShippedRecipeIsCutAsItsFamilyIsDrawn) {
  const auto root = std::filesystem::path(__FILE__).parent_path() / "../..";
  int recipes = 0;
  for (const char* folder : {"tools/recipes", "tests/bench"}) {
    for (const auto& entry : std::filesystem::directory_iterator(root / folder)) {
      const std::string path = entry.path().string();
      if (entry.path().extension() != ".json" || entry.path().filename() == "chen_curves.json") continue;
      // The recipe needs a model file that is not in the repository; the next test covers its
      // family.
      if (path.find("smollm2") != std::string::npos) continue;
      expect_family_cuts(read_recipe(path));
      ++recipes;
    }
  }
  EXPECT_GE(recipes, 5);
}

Recipe recipe_of(const std::string& model, const std::string& more = "") {
  return parse_recipe(R"({"name": "some", "model": {)" + model + R"(}, "data": {"kind": "synthetic"}, "batch": 2)" +
                          more + "}",
                      "some.json", "/");
}
const std::string kSizes =
    R"(, "vocab_size": 50, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 4,
                             "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64)";

TEST(Cuts, AdaptersDropoutAndDocumentsMoveNone) {
  for (const char* family : {"llama", "qwen2", "qwen3"}) {
    const std::string model = R"("family": ")" + std::string(family) + "\"" + kSizes;
    expect_family_cuts(recipe_of(model, R"(, "sequence": 16)"));
    expect_family_cuts(recipe_of(model, R"(, "sequence": 16, "lora": {"r": 2, "dropout": 0.1})"));
    expect_family_cuts(recipe_of(model, R"(, "sequence": 16, "lora": {"r": 2, "dora": true})"));
    Recipe recipe = recipe_of(model, R"(, "sequence": 16)");
    const Graph packed = build_model(recipe, {"some.json"}, {.samples = 2, .sequence = 16, .documents = true});
    EXPECT_NE(packed.document_start, kNoValue);
    EXPECT_EQ(names_of(packed, packed.boundaries), halves("model.embed_tokens", "model.layers.", 3));
  }
  for (const char* dropout : {"0", "0.1"}) {
    expect_family_cuts(recipe_of(
        R"("family": "gpt2", "vocab_size": 50, "n_positions": 32, "n_embd": 24, "n_layer": 2, "n_head": 2, "embd_pdrop": )" +
            std::string(dropout),
        R"(, "sequence": 16)"));
  }
  expect_family_cuts(deep_resnet({1, 2, 1, 1}));
  expect_family_cuts(recipe_of(R"("family": "resnet", "block": "basic", "units": [1, 2, 1], "image": [32, 32, 3])"));
}

// Plans the graph as the planner does, and expects a plan that check() accepts.
void expect_plan(const Graph& network, const std::string& strategy) {
  Recipe recipe;
  recipe.name = "line";
  recipe.optimizer.update = Op::kSgd;
  recipe.optimizer.lr = 0.1;
  recipe.schedule.strategy = strategy;
  const SolvedModel model = solve_network(recipe, network);
  const PlannedModel planned = plan_model(model, request_of(model));
  ASSERT_TRUE(planned.fits);
  const Plan plan = planned.plan.view();
  std::vector<CheckMark> marks(check_marks(plan));
  EXPECT_EQ(check(plan, marks.data(), backend_of(recipe)).fault, Fault::kNone);
}

// Without blocks, a link gets as many values as can be tried in every combination. A ReLU or norm
// stays in the link of its convolution, because it overwrites the convolution's output.
TEST(Cuts, ALongLineIsCutIntoLinksThatCanBeSolved) {
  Net net;
  for (int i = 0; i < 10; ++i) net.step("s" + std::to_string(i));
  net.end();
  EXPECT_EQ(cuts_of(net.graph), (Names{"s3", "s7"}));
  net.graph.boundaries = find_cuts(net.graph);
  for (const char* strategy : {"none", "sqrt", "optimal"}) expect_plan(net.graph, strategy);
  ChainBodies bodies = cut_into_links(net.graph);
  solve_links(net.graph, bodies.links, kNoScratch, convolution_flops);
  EXPECT_EQ(bodies.links.size(), 3u);
  EXPECT_EQ(truncated_links(bodies.links), 0u);
}

// In plans for a small core, each step (a convolution, its norm and its function) is a link. Nets
// with blocks are cut as for large processors.
TEST(Cuts, OnASmallCoreALineIsCutAtEachStep) {
  Net net;
  for (int i = 0; i < 4; ++i) net.step("s" + std::to_string(i));
  net.end();
  EXPECT_EQ(names_of(net.graph, find_cuts(net.graph, kMaxValuesOnSmallCore)), (Names{"s0", "s1", "s2", "s3"}));
  const auto small = std::filesystem::path(__FILE__).parent_path() / "../../tools/recipes/small";
  const auto cuts_of_file = [&small](const char* file) {
    const Graph graph = build_model(read_recipe((small / file).string()));
    return names_of(graph, graph.boundaries);
  };
  Names steps = {"relu1"};
  for (int block = 1; block <= 4; ++block) {
    for (const char* function : {".relu1", ".relu2"}) steps.push_back("block" + std::to_string(block) + function);
  }
  EXPECT_EQ(cuts_of_file("ds-cnn.json"), steps);
  EXPECT_EQ(cuts_of_file("resnet8.json"), (Names{"relu", "layer1.0", "layer2.0", "layer3.0"}));
}

TEST(Cuts, AShortLineIsOneLink) {
  Net net;
  net.step("s");
  net.end();
  EXPECT_EQ(cuts_of(net.graph), Names{});
  for (const char* strategy : {"none", "optimal"}) expect_plan(net.graph, strategy);
}

// A node between two blocks belongs to the block before it. After the last block this holds only
// for a node that is computed in place: the last norm belongs to the next link.
TEST(Cuts, ANormBehindABlockBelongsToIt) {
  Graph graph;
  ValueId x = graph.input = graph.add_value("x", ValueKind::kInput, {2, 3, 8});
  graph.labels = graph.add_value("labels", ValueKind::kLabels, {2, 3}, DType::kI32);
  for (const std::string name : {"a", "b"}) {
    const ValueId y = graph.linear(x, name + ".linear", 8, false, false, 1);
    x = graph.dropout(graph.add(x, y, name + ".add"), name + ".drop", 0.1f);
    x = graph.layer_norm(x, name + ".norm", 1e-5f);
  }
  graph.loss_head(x, "head", graph.parameter("w", {5, 8}, InitKind::kNormal, 1), kNoValue);
  EXPECT_EQ(cuts_of(graph), (Names{"a.norm", "b.drop"}));
}

// The node "again" reads the input once more. So there is no cut before it, because the input would
// cross there in addition to the boundary.
TEST(Cuts, WhereTheInputIsReadAgainNothingIsCutBefore) {
  Net net;
  const ValueId images = net.x;
  net.step("a");
  net.step("b");
  net.x = net.graph.add(net.x, images, "again");
  net.step("c");
  net.end();
  EXPECT_EQ(cuts_of(net.graph), (Names{"again"}));
}

std::vector<std::string> skip_values(const Graph& graph) {
  std::vector<std::string> names;
  for (const Value& value : graph.values) {
    if (value.kind == ValueKind::kSkip) names.push_back(value.name);
  }
  return names;
}

// A small block is one link. A large block is cut at places where only skips cross in addition to
// the boundary. The cuts proceed inwards from the outermost skip until the remaining part is small
// enough.
TEST(Cuts, ALargeBlockIsCutWhereItsSkipsCross) {
  for (const auto& [levels, held] : {std::pair{1, Names{}}, {3, Names{"down0b"}}, {4, Names{"down0b", "down1b"}}}) {
    SCOPED_TRACE(levels);
    Graph graph = unet(levels);
    graph.boundaries = find_cuts(graph);
    for (const char* strategy : {"none", "sqrt", "revolve", "optimal"}) expect_plan(graph, strategy);
    const ChainBodies bodies = cut_into_links(graph);
    EXPECT_EQ(skip_values(graph), held);
    for (const LinkBody& link : bodies.links)
      EXPECT_LE(link.end_node - link.first_node, kMaxBlockNodes + kMaxCandidates) << link.name;
  }
}

// A leaf (a learned value without inputs) is no path around other nodes. So reading a leaf makes no
// block, and two readers of one leaf may be in two links.
TEST(Cuts, LeavesMakeNoBlocks) {
  const auto scaled = [](bool by_leaf) {
    Graph g;
    g.input = g.add_value("x", ValueKind::kInput, {4, 8});
    g.labels = g.add_value("labels", ValueKind::kLabels, {4}, DType::kI32);
    const ValueId scale = g.learned("scale", {8}, InitKind::kConstant, 1);
    ValueId x = g.input;
    for (const char* layer : {"l1", "l2"}) {
      x = g.linear(x, layer, 8, false, false, 1);
      x = by_leaf ? g.multiply(x, scale, layer + std::string(".scaled")) : g.relu(x, layer + std::string(".relu"));
    }
    g.loss_head(x, "head", g.parameter("head.weight", {3, 8}, InitKind::kNormal, 1), kNoValue);
    return g;
  };
  EXPECT_EQ(cuts_of(scaled(true)), cuts_of(scaled(false)));
  Graph squeeze = SqueezeNetwork::build();
  const Names cuts = cuts_of(squeeze);
  for (const char* unit : {"unit1", "unit2"}) EXPECT_EQ(std::count(cuts.begin(), cuts.end(), unit), 1) << unit;
  squeeze.boundaries = find_cuts(squeeze);
  EXPECT_NO_THROW(cut_into_links(squeeze));
}

// True if node i's main output is the only earlier value that the nodes after i read.
bool may_cut(const Graph& graph, size_t i) {
  std::set<ValueId> read, written;
  for (size_t n = i + 1; n < graph.nodes.size(); ++n) {
    for (const ValueId v : graph.nodes[n].inputs) {
      if (written.count(v) == 0) read.insert(v);
    }
    written.insert(graph.nodes[n].outputs.begin(), graph.nodes[n].outputs.end());
  }
  return !graph.nodes[i].outputs.empty() && read == std::set<ValueId>{graph.nodes[i].outputs[0]};
}

// Checks each cut, and each place that is not cut, against rules 1 to 3 of find_cuts() (cuts.h).
TEST(Cuts, RandomGraphsAreCutByTheRule) {
  size_t all_cuts = 0, long_lines = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Graph graph = random_graph(random, 3 + random() % (kMaxBlockNodes - 4), 3);
    const std::vector<ValueId> cuts = find_cuts(graph);
    all_cuts += cuts.size();
    size_t first = 0, last_possible = 0;
    bool has_block = false;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const bool possible = may_cut(graph, i), last = i + 1 == graph.nodes.size();
      const bool taken = !last && std::count(cuts.begin(), cuts.end(), graph.nodes[i].outputs[0]) != 0;
      ASSERT_TRUE(possible || !taken) << graph.nodes[i].name;
      if (!possible && !last) continue;
      const bool begins_link = last_possible == first;
      has_block = has_block || i + 1 - last_possible > 1;
      ASSERT_TRUE(begins_link || i + 1 - last_possible == 1) << "a block must begin a link: " << graph.nodes[i].name;
      const bool in_place = i + 1 - last_possible == 1 && graph.nodes[i].op == Op::kRelu;
      ASSERT_TRUE(!begins_link || first == 0 || !in_place)
          << "cut off from what it is computed in place of: " << graph.nodes[i].name;
      if (!begins_link && !in_place) {
        EXPECT_LE(i + (last ? 0 : 1) - first, kMaxCandidates) << graph.nodes[i].name;
      }
      last_possible = i + 1;
      if (taken) {
        long_lines += !has_block;
        first = i + 1;
        has_block = false;
      }
    }
    graph.boundaries = cuts;
    EXPECT_NO_THROW(cut_into_links(graph));
  }
  EXPECT_GT(all_cuts, 6000u);
  EXPECT_GT(long_lines, 100u);
}

}  // namespace
}  // namespace reprise
