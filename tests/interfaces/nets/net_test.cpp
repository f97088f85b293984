// Tests nets that a recipe lists node by node. Their plan must equal that of the family, and
// refusals must name the node.
#include "tools/plan/models/net.h"

#include <gtest/gtest.h>

#include "tests/interfaces/expect_user_error.h"
#include "tools/files/io/output_file.h"
#include "tools/plan/planning/planner.h"
#include "tools/plan/recipes/recipe.h"
#include "tools/plan/recipes/recipe_graph.h"
#include "tools/plan/writing/plan_header.h"

namespace reprise::test {
namespace {

using nlohmann::json;

const json kRest = {{"batch", 8},
                    {"steps", 3},
                    {"data", {{"kind", "synthetic"}}},
                    {"seed", 3},
                    {"optimizer", {{"name", "sgd"}, {"lr", 0.1}, {"momentum", 0.9}}}};

Recipe recipe_of(const json& model, const std::string& folder = "/", const json& more = json::object()) {
  json recipe = kRest;
  recipe["model"] = model;
  recipe["name"] = "net";
  recipe.update(more);
  return parse_recipe(recipe.dump(), "net.json", folder);
}

OwnedPlan plan_of(const Recipe& recipe) {
  const SolvedModel model = solve_model(recipe);
  PlannedModel planned = plan_model(model, request_of(model));
  EXPECT_TRUE(planned.fits);
  return std::move(planned.plan);
}

// Returns the hash of the plan's tables. It does not depend on the recipe's name.
std::string hash_of(Recipe recipe, const std::optional<uint64_t>& budget = std::nullopt) {
  recipe.budget_bytes = budget;
  OwnedPlan plan = plan_of(recipe);
  plan.recipe_hash = 0;
  return plan_hash(plan);
}

// torchvision's ResNet of basic blocks or bottlenecks, written as a list of nodes.
class ResNetNodes {
 public:
  json nodes = json::array();

  void conv_norm(const std::string& conv, const std::string& norm, int channels, int kernel, int stride, int pad,
                 const std::string& input = "") {
    json node = {{"op", "conv"},     {"name", conv},     {"channels", channels},
                 {"kernel", kernel}, {"stride", stride}, {"pad", pad}};
    if (!input.empty()) node["inputs"] = {input};
    nodes.push_back(node);
    nodes.push_back({{"op", "batch_norm"}, {"name", norm}});
  }
  void relu(const std::string& name) { nodes.push_back({{"op", "relu"}, {"name", name}}); }

  void unit(const std::string& name, const std::string& input, int channels, int stride, bool bottleneck,
            bool projects) {
    const int out = bottleneck ? 4 * channels : channels;
    if (bottleneck) {
      conv_norm(name + ".conv1", name + ".bn1", channels, 1, 1, 0, input);
      relu(name + ".relu1");
      conv_norm(name + ".conv2", name + ".bn2", channels, 3, stride, 1);
      relu(name + ".relu2");
      conv_norm(name + ".conv3", name + ".bn3", out, 1, 1, 0);
    } else {
      conv_norm(name + ".conv1", name + ".bn1", channels, 3, stride, 1, input);
      relu(name + ".relu1");
      conv_norm(name + ".conv2", name + ".bn2", channels, 3, 1, 1);
    }
    std::string shortcut = input;
    if (projects) {
      conv_norm(name + ".downsample.0", name + ".downsample.1", out, 1, stride, 0, input);
      shortcut = name + ".downsample.1";
    }
    nodes.push_back(
        {{"op", "add"}, {"name", name + ".add"}, {"inputs", {name + (bottleneck ? ".bn3" : ".bn2"), shortcut}}});
    relu(name);
  }
};

json small_resnet(bool imagenet) {
  ResNetNodes net;
  const int width = imagenet ? 64 : 16;
  net.conv_norm("conv1", "bn1", width, imagenet ? 7 : 3, imagenet ? 2 : 1, imagenet ? 3 : 1);
  net.relu("relu");
  if (imagenet)
    net.nodes.push_back({{"op", "max_pool"}, {"name", "maxpool"}, {"kernel", 3}, {"stride", 2}, {"pad", 1}});
  std::string last = imagenet ? "maxpool" : "relu";
  for (int stage = 0; stage < 3; ++stage) {
    for (int unit = 0; unit < 2; ++unit) {
      const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(unit);
      net.unit(name, last, width << stage, stage > 0 && unit == 0 ? 2 : 1, imagenet,
               unit == 0 && (stage > 0 || imagenet));
      last = name;
    }
  }
  net.nodes.push_back({{"op", "global_pool"}, {"name", "avgpool"}});
  net.nodes.push_back({{"op", "loss_head"}, {"name", "fc"}, {"classes", 10}});
  return {{"family", "net"}, {"image", {32, 32, 3}}, {"nodes", net.nodes}};
}

// A ResNet written node by node must have the same plan as the family: equal names, shapes, initial
// values, cuts, schedule, layout and rows.
TEST(Net, HasTheVeryPlanOfAFamily) {
  for (const bool imagenet : {false, true}) {
    const json family = {{"family", "resnet"},
                         {"units", {2, 2, 2}},
                         {"image", {32, 32, 3}},
                         {"stem", imagenet ? "imagenet" : "cifar"},
                         {"block", imagenet ? "bottleneck" : "basic"}};
    const Recipe of_nodes = recipe_of(small_resnet(imagenet)), of_family = recipe_of(family);
    EXPECT_EQ(hash_of(of_nodes), hash_of(of_family));
    const SolvedModel model = solve_model(of_family);
    const uint64_t minimum = smallest_budget(model, request_of(model)),
                   middle = minimum + (model.store_all_bytes - minimum) / 2;
    EXPECT_EQ(hash_of(of_nodes, middle), hash_of(of_family, middle));
    EXPECT_NE(hash_of(of_nodes, middle), hash_of(of_nodes));
  }
}

TEST(Net, IsWrittenAsItIsRead) {
  const Recipe recipe = recipe_of(small_resnet(false));
  EXPECT_EQ(parse_recipe(canonical_recipe(recipe), "again.json", "/"), recipe);
}

TEST(Net, StandsInAFileOfItsOwn) {
  const TemporaryFolder folder;
  json file = small_resnet(true);
  file.erase("family");
  write_file(folder.file("net.graph.json"), "// a net\n" + file.dump());
  EXPECT_EQ(recipe_of({{"graph", "net.graph.json"}}, folder.path()), recipe_of(small_resnet(true)));
  expect_user_error([&] { recipe_of({{"graph", "other.json"}}, folder.path()); }, {"other.json"});
  file["nodes"][3]["kernel"] = -1;
  write_file(folder.file("net.graph.json"), file.dump());
  expect_user_error(
      [&] {
        recipe_of({{"graph", "net.graph.json"}}, folder.path());
      },
      {"net.graph.json", "nodes[3].kernel", "from 1"});
}

// A net with all these ops must have a plan; ops may follow each other in any order that Graph
// accepts.
TEST(Net, TakesEveryOp) {
  const json nodes = json::parse(R"([
      {"op": "conv", "name": "a", "channels": 8, "kernel": 3, "pad": 1}, {"op": "group_norm", "name": "b", "groups": 2}, {"op": "gelu", "name": "c", "tanh": true},
      {"op": "max_pool", "name": "d", "kernel": 2, "stride": 2}, {"op": "layer_norm", "name": "e"}, {"op": "linear", "name": "f", "features": 16},
      {"op": "gelu", "name": "g"}, {"op": "dropout", "name": "h", "p": 0.1}, {"op": "linear", "name": "i", "features": 8, "bias": false},
      {"op": "add", "name": "j", "inputs": ["i", "e"]}, {"op": "batch_norm", "name": "k"}, {"op": "relu", "name": "l"}, {"op": "global_pool", "name": "m"},
      {"op": "loss_head", "name": "n", "classes": 3, "bias": false}])");
  const OwnedPlan plan = plan_of(recipe_of({{"family", "net"}, {"image", {8, 8, 3}}, {"nodes", nodes}}));
  EXPECT_GT(plan.arena_bytes, 0u);
  EXPECT_EQ(describe_model(recipe_of({{"family", "net"}, {"image", {8, 8, 3}}, {"nodes", nodes}}).model).classes, 3);
}

// Returns the number of batch-norm rows with the given pass.
size_t rows_of(const OwnedPlan& plan, Pass pass) {
  size_t count = 0;
  for (const auto& program : plan.programs) {
    for (const Row& row : program.rows) count += row.op == Op::kBatchNorm && row.pass == pass ? 1 : 0;
  }
  return count;
}

// A batch-norm without weight and bias has constant tables in their place. No file stores the
// tables, and no step changes them. Freezing "b.weight" makes the batch-norm use its running
// statistics, although it has no weight.
TEST(Net, MayHaveABatchNormWithoutAWeight) {
  const json nodes = json::parse(R"([
      {"op": "conv", "name": "a", "channels": 8, "kernel": 3}, {"op": "batch_norm", "name": "b", "affine": false}, {"op": "at_least", "name": "c", "bound": -1},
      {"op": "at_most", "name": "d", "bound": 2}, {"op": "rms_norm", "name": "e"}, {"op": "exp", "name": "f"}, {"op": "sqrt", "name": "g"},
      {"op": "reciprocal", "name": "h"}, {"op": "global_pool", "name": "i"}, {"op": "loss_head", "name": "j", "classes": 3}])");
  Recipe recipe = recipe_of({{"family", "net"}, {"image", {8, 8, 3}}, {"nodes", nodes}});
  EXPECT_EQ(recipe_of(model_json(recipe.model)), recipe);
  const OwnedPlan trained = plan_of(recipe);
  size_t tables = 0;
  for (const StateTensor& state : trained.state) {
    const std::string name = state.name;
    if (name != "b.weight" && name != "b.bias") continue;
    EXPECT_EQ(state.kind, StateKind::kTable);
    ++tables;
  }
  EXPECT_EQ(tables, 2u);
  EXPECT_GT(rows_of(trained, Pass::kRunning), 0u);
  EXPECT_EQ(std::count(trained.carried_names.begin(), trained.carried_names.end(), std::string("d(b.weight)")), 0);
  recipe.freeze = {"b.weight"};
  const OwnedPlan frozen = plan_of(recipe);
  EXPECT_EQ(rows_of(frozen, Pass::kRunning), 0u);
  EXPECT_GT(rows_of(frozen, Pass::kInference), rows_of(trained, Pass::kInference));
}

// A batch-norm node may fix its statistics: "running" ones while its weight trains, or those of the
// batch while its weight is frozen. Nodes before a detach are not trained and have no gradient.
TEST(Net, ObeysWhatNodesSayOfGradients) {
  const json nodes = json::parse(R"([
      {"op": "conv", "name": "a", "channels": 6, "kernel": 3, "bias": true}, {"op": "batch_norm", "name": "b"}, {"op": "detach", "name": "c"},
      {"op": "conv", "name": "d", "channels": 4, "kernel": 1}, {"op": "batch_norm", "name": "e", "running": true}, {"op": "relu", "name": "f"},
      {"op": "batch_norm", "name": "g", "running": false}, {"op": "layer_norm", "name": "h", "bias": false}, {"op": "group_norm", "name": "i", "groups": 2, "weight": false},
      {"op": "global_pool", "name": "j"}, {"op": "loss_head", "name": "k", "classes": 3}])");
  Recipe recipe = recipe_of({{"family", "net"}, {"image", {8, 8, 3}}, {"nodes", nodes}});
  recipe.freeze = {"g.weight"};
  const OwnedPlan plan = plan_of(recipe);
  std::vector<std::string> carried(plan.carried_names.begin(), plan.carried_names.end());
  std::sort(carried.begin(), carried.end());
  EXPECT_EQ(carried, (std::vector<std::string>{"d(d.weight)", "d(e.bias)", "d(e.weight)", "d(g.bias)", "d(h.weight)",
                                               "d(i.bias)", "d(k.bias)", "d(k.weight)"}));
  EXPECT_EQ(rows_of(plan, Pass::kRunning), 2u) << "of b and g";
}

// Tests the ops of imported nets, and keys that may be lists of numbers. A net that was read must
// be written in the same form.
TEST(Net, TakesWhatIsImported) {
  const json nodes = json::parse(R"([
      {"op": "conv", "name": "a", "channels": 6, "kernel": [3, 5], "stride": [1, 2], "pad": [1, 2, 0, 2], "dilation": 1, "groups": 3, "bias": true},
      {"op": "hardswish", "name": "b"}, {"op": "avg_pool", "name": "c", "kernel": 2, "stride": 1, "counts_pad": true, "pad": 1},
      {"op": "conv_transpose", "name": "d", "channels": 6, "kernel": 2, "stride": 2, "more": [1, 0], "bias": true}, {"op": "leaky_relu", "name": "e", "slope": 0.2},
      {"op": "resize_bilinear", "name": "f", "size": [4, 4]}, {"op": "resize_nearest", "name": "g", "size": 4, "inputs": ["e"]},
      {"op": "concat", "name": "h", "axis": 3, "inputs": ["f", "g"]}, {"op": "drop_path", "name": "i", "p": 0.1},
      {"op": "learned", "name": "gamma", "shape": 12}, {"op": "multiply", "name": "j", "inputs": ["i", "gamma"]}, {"op": "scale", "name": "k", "factor": 0.5},
      {"op": "pad", "name": "l", "behind": [1, 1, 0]}, {"op": "slice", "name": "m", "axis": 1, "first": 1, "count": 4},
      {"op": "reshape", "name": "n", "shape": [20, 12]}, {"op": "transpose", "name": "o", "order": [2, 1]}, {"op": "linear", "name": "p", "features": 12},
      {"op": "attention", "name": "q", "heads": 3, "causal": false, "inputs": ["p", "p2", "p3"]}, {"op": "resize_bilinear_aligned", "name": "s", "size": 2, "inputs": ["r"]},
      {"op": "detach", "name": "still"}, {"op": "batch_norm", "name": "kept", "running": true}, {"op": "group_norm", "name": "plain", "groups": 2, "weight": false, "bias": false},
      {"op": "layer_norm", "name": "half", "bias": false}, {"op": "rms_norm", "name": "root", "weight": false},
      {"op": "global_pool", "name": "t"}, {"op": "loss_head", "name": "u", "classes": 3}])");
  json list = nodes;
  const auto linear = [](const char* name) {
    return json({{"op", "linear"}, {"name", name}, {"features", 12}, {"inputs", {"o"}}});
  };
  list.insert(list.begin() + 17, linear("p3"));
  list.insert(list.begin() + 17, linear("p2"));
  list.insert(list.begin() + 20, json({{"op", "reshape"}, {"name", "r"}, {"shape", {3, 4, 12}}}));
  const json model = {{"family", "net"}, {"image", {8, 8, 3}}, {"nodes", list}};
  const Recipe recipe = recipe_of(model);
  EXPECT_GT(plan_of(recipe).arena_bytes, 0u);
  EXPECT_EQ(recipe_of(model_json(recipe.model)), recipe);
  json two = model;
  two["nodes"].erase(18);  // erases the node "p3"
  ASSERT_EQ(two["nodes"][18]["op"], "attention");
  two["nodes"][18]["inputs"] = {"p", "p2"};
  expect_user_error([&] { recipe_of(two); }, {"q (attention): has 2 inputs"});
  const json written = model_json(recipe.model).at("nodes");
  EXPECT_EQ(written[0].at("kernel"), json({3, 5}));
  EXPECT_EQ(written[0].at("dilation"), 1);
  EXPECT_EQ(written[5].at("inputs"), json({"e"}));
}

// "all-linear" gives adapters to linear layers and to 1 x 1 convolutions. A wider convolution gets
// an adapter only if the targets name it. A convolution with groups cannot have an adapter.
TEST(Net, HasAdaptersBesideItsLayers) {
  const json nodes = json::parse(R"([
      {"op": "conv", "name": "wide", "channels": 8, "kernel": 3, "pad": 1}, {"op": "conv", "name": "grouped", "channels": 8, "kernel": 1, "groups": 2},
      {"op": "conv", "name": "point", "channels": 6, "kernel": 1, "stride": 2}, {"op": "batch_norm", "name": "norm"}, {"op": "global_pool", "name": "pool"},
      {"op": "linear", "name": "fc", "features": 5}, {"op": "loss_head", "name": "head", "classes": 3}])");
  const json model = {{"family", "net"}, {"image", {8, 8, 3}}, {"nodes", nodes}};
  const auto with = [&](const json& lora, const json& more = json::object()) {
    json all = {{"lora", lora}};
    all.update(more);
    return recipe_of(model, "/", all);
  };
  const auto trained = [&](const json& lora) {
    std::map<std::string, Shape> shapes;
    for (const Value& value : build_model(with(lora)).values) {
      if (value.trainable) shapes[value.name] = Shape(value.tensor.shape, value.tensor.shape + value.tensor.rank);
    }
    return shapes;
  };
  std::map<std::string, Shape> expected = {{"point.lora_A.weight", {4, 1, 1, 8}},
                                           {"point.lora_B.weight", {6, 1, 1, 4}},
                                           {"fc.lora_A.weight", {4, 6}},
                                           {"fc.lora_B.weight", {5, 4}}};
  EXPECT_EQ(trained({{"r", 4}}), expected);
  expected = {{"wide.lora_A.weight", {4, 3, 3, 3}},
              {"wide.lora_B.weight", {8, 1, 1, 4}},
              {"head.weight", {3, 5}},
              {"head.bias", {3}}};
  EXPECT_EQ(trained({{"r", 4}, {"targets", {"wide"}}, {"modules_to_save", {"head"}}}), expected);
  EXPECT_GT(plan_of(with({{"r", 4}, {"dropout", 0.5}, {"targets", {"wide", "point"}}})).arena_bytes, 0u);
  expect_user_error(
      [&] {
        build_model(with({{"r", 4}, {"targets", {"grouped"}}}));
      },
      {"lora.targets[0]", "\"grouped\" is no linear layer or convolution of one group", "\"wide\""});
  expect_user_error(
      [&] {
        build_model(with({{"r", 4}, {"dora", true}}));
      },
      {"point (conv)", "has no DoRA", "lora.targets"});
  expect_user_error(
      [&] {
        build_model(with({{"r", 4}}, {{"init", {{"from", "w.safetensors"}, {"skip", {"head.*"}}}}}));
      },
      {"lora.modules_to_save", "\"head\"", "init.skip"});
}

// Tied parameters are one tensor. An adapter on one of the layers would change the others too, so a
// layer with a tied parameter gets no adapter.
TEST(Net, SharesTheTiedParametersOfItsNodes) {
  const json model = {{"family", "net"},
                      {"image", {8, 8, 8}},
                      {"tied", {{"b.weight", "a.weight"}, {"m.running_var", "n.running_var"}}},
                      {"nodes", json::parse(R"([
      {"op": "conv", "name": "a", "channels": 8, "kernel": 1}, {"op": "batch_norm", "name": "n"}, {"op": "conv", "name": "b", "channels": 8, "kernel": 1, "bias": true},
      {"op": "batch_norm", "name": "m"}, {"op": "global_pool", "name": "pool"}, {"op": "linear", "name": "fc", "features": 8}, {"op": "loss_head", "name": "head", "classes": 3}])")}};
  const Recipe recipe = recipe_of(model);
  EXPECT_EQ(recipe_of(model_json(recipe.model)), recipe);
  std::map<std::string, size_t> readers;
  const Graph graph = build_model(recipe, {"net.json"});
  for (const Node& node : graph.nodes) {
    for (const std::vector<ValueId>* read : {&node.parameters, &node.buffers}) {
      for (const ValueId v : *read) readers[v == kNoValue ? "" : graph.values[v].name] += 1;
    }
  }
  EXPECT_EQ(readers["a.weight"], 2u);
  EXPECT_EQ(readers["n.running_var"], 2u);
  EXPECT_EQ(readers.count("b.weight") + readers.count("m.running_var"), 0u);
  EXPECT_EQ(readers["b.bias"] + readers["m.running_mean"], 2u);
  const auto adapters = [&](const json& targets) {
    std::vector<std::string> names;
    for (const Value& value :
         build_model(recipe_of(model, "/", {{"lora", {{"r", 2}, {"targets", targets}}}}), {"net.json"}).values) {
      if (is_adapter(value.name)) names.push_back(value.name);
    }
    return names;
  };
  EXPECT_EQ(adapters("all-linear"), (std::vector<std::string>{"fc.lora_A.weight", "fc.lora_B.weight"}));
  expect_user_error([&] { adapters({"b"}); }, {"b: shares its weight"});
}

const json kLanguageModel = json::parse(R"({"family": "net", "tokens": {"length": 8}, "nodes": [
      {"op": "learned", "name": "wpe.weight", "shape": [10, 12]}, {"op": "embedding", "name": "wte", "rows": 31, "features": 12, "inputs": ["tokens", "wpe.weight"]},
      {"op": "layer_norm", "name": "ln_1"}, {"op": "linear", "name": "qkv", "features": 36}, {"op": "attention", "name": "core", "heads": 3},
      {"op": "add", "name": "sum", "inputs": ["wte", "core"]}, {"op": "layer_norm", "name": "ln_f"},
      {"op": "loss_head", "name": "lm_head", "classes": 31, "bias": false}], "tied": {"lm_head.weight": "wte.weight"}})");

// The embedding of token types has two rows, so each token must have the type 0 or 1.
TEST(Net, OfTextsReadsTheTypesOfTokens) {
  const json right = json::parse(R"({"family": "net", "text": {"length": 6, "pad": 0}, "nodes": [
      {"op": "embedding", "name": "words", "rows": 9, "features": 4}, {"op": "embedding", "name": "kinds", "rows": 2, "features": 4, "inputs": ["types"]},
      {"op": "add", "name": "sum", "inputs": ["words", "kinds"]}, {"op": "global_pool", "name": "mean", "masked": true},
      {"op": "loss_head", "name": "fc", "classes": 3}]})");
  const Recipe recipe = recipe_of(right);
  EXPECT_EQ(describe_model(recipe.model).token_types, 2);
  EXPECT_EQ(describe_model(recipe.model).vocabulary, 9);
  EXPECT_EQ(recipe_of(model_json(recipe.model)), recipe);
  const Graph graph = build_model(recipe);
  EXPECT_EQ(shape_of(graph.tensor(graph.token_types)), shape_of(graph.tensor(graph.input)));
  EXPECT_GT(plan_of(recipe).arena_bytes, 0u);
  const auto refused = [&](const char* patch, std::initializer_list<std::string> fragments) {
    expect_user_error([&] { recipe_of(right.patch(json::parse(patch))); }, fragments);
  };
  refused(R"([{"op": "replace", "path": "/nodes/1/op", "value": "linear"}, {"op": "remove", "path": "/nodes/1/rows"}])",
          {"model.nodes", "kinds", "types"});
  refused(R"([{"op": "add", "path": "/nodes/0/name", "value": "types"}])", {"model.nodes[0].name", "\"types\""});
  refused(R"([{"op": "remove", "path": "/text"}, {"op": "add", "path": "/image", "value": [4, 4, 1]}])",
          {"model.nodes[1].inputs", "\"types\" is neither"});
}

TEST(Net, OfALanguageModelReadsTokens) {
  const Recipe recipe = recipe_of(kLanguageModel);
  EXPECT_EQ(recipe.sequence, 8);
  EXPECT_EQ(describe_model(recipe.model).vocabulary, 31);
  EXPECT_EQ(describe_model(recipe.model).input, ModelDescription::Input::kTokens);
  EXPECT_EQ(parse_recipe(canonical_recipe(recipe), "again.json", "/"), recipe);
  const Graph graph = build_model(recipe);
  std::set<std::string> parameters;
  for (const Value& value : graph.values) {
    if (value.kind == ValueKind::kParameter) parameters.insert(value.name);
  }
  EXPECT_EQ(parameters, (std::set<std::string>{"wpe.weight", "wte.weight", "ln_1.weight", "ln_1.bias", "qkv.weight",
                                               "qkv.bias", "ln_f.weight", "ln_f.bias"}));
  EXPECT_EQ(shape_of(graph.tensor(graph.labels)), (Shape{8, 8}));
  EXPECT_EQ(graph.nodes.back().parameters[0], graph.nodes.front().parameters[0]);
  EXPECT_GT(plan_of(recipe).arena_bytes, 0u);
}

TEST(Net, OfALanguageModelRefusesWhatReadsAhead) {
  struct Wrong {
    const char *patch, *first, *second = "", *third = "";
  };
  const Wrong all[] = {
      {R"([{"op": "add", "path": "/nodes/4/causal", "value": false}])", "core (attention)", "must be causal"},
      {R"([{"op": "add", "path": "/nodes/4/masked", "value": true}])", "\"masked\"", "nets of texts"},
      {R"([{"op": "replace", "path": "/nodes/0/shape", "value": [6, 12]}])", "wte (embedding)", "[8 or more,12]"},
      {R"([{"op": "replace", "path": "/nodes/7/classes", "value": 30}])", "lm_head.weight", "[31,12]",
       "must be of [30,12]"},
      {R"([{"op": "replace", "path": "/nodes/0/op", "value": "embedding"}, {"op": "remove", "path": "/nodes/0/shape"}, {"op": "add", "path": "/nodes/0/rows", "value": 10},
           {"op": "add", "path": "/nodes/0/features", "value": 12}, {"op": "add", "path": "/nodes/0/inputs", "value": ["tokens"]}])",
       "model.nodes[1].inputs", "\"learned\""},
      {R"([{"op": "add", "path": "/image", "value": [8, 8, 1]}])", "model.tokens", "cannot go with \"image\""},
      {R"([{"op": "add", "path": "/text", "value": {"length": 8}}])", "cannot go with \"text\""},
      {R"([{"op": "remove", "path": "/tokens/length"}])", "model.tokens.length"},
      {R"([{"op": "add", "path": "/nodes/3/input_major", "value": true}, {"op": "add", "path": "/nodes/4", "value": {"op": "linear", "name": "more", "features": 36}}])",
       "model.nodes", "\"qkv\" is \"input_major\"", "\"more\" is not"},
      {R"([{"op": "remove", "path": "/tied"}, {"op": "replace", "path": "/nodes/7", "value": {"op": "mse_loss", "name": "l"}}])",
       "must be a \"loss_head\""},
  };
  for (const Wrong& wrong : all) {
    SCOPED_TRACE(wrong.patch);
    expect_user_error([&] { recipe_of(kLanguageModel.patch(json::parse(wrong.patch))); },
                      {"net.json", wrong.first, wrong.second, wrong.third});
  }
  expect_user_error(
      [&] {
        recipe_of(kLanguageModel, "/", {{"sequence", 4}});
      },
      {"sequence", "must be the net's own length, 8, not 4"});
}

TEST(Net, RefusesWhatIsWrongByNode) {
  struct Wrong {
    const char *patch, *first, *second = "", *third = "";
  };
  const Wrong all[] = {
      {R"([{"op": "replace", "path": "/nodes/0/op", "value": "conv3d"}])", "model.nodes[0].op", "conv3d", "\"conv\""},
      {R"([{"op": "remove", "path": "/nodes/0/channels"}])", "model.nodes[0].channels"},
      {R"([{"op": "replace", "path": "/nodes/0/kernel", "value": 2.5}])", "model.nodes[0].kernel", "integer"},
      {R"([{"op": "replace", "path": "/nodes/0/kernel", "value": [3, 3, 3]}])", "model.nodes[0].kernel",
       "has 3 numbers", "1 or 2"},
      {R"([{"op": "replace", "path": "/nodes/0/kernel", "value": [3, 0]}])", "model.nodes[0].kernel", "from 1"},
      {R"([{"op": "add", "path": "/nodes/0/sharp", "value": 2}])", "model.nodes[0].sharp", "unknown"},
      {R"([{"op": "replace", "path": "/nodes/1/name", "value": "conv1"}])", "model.nodes[1].name", "conv1"},
      {R"([{"op": "replace", "path": "/nodes/1/name", "value": ""}])", "model.nodes[1].name"},
      {R"([{"op": "add", "path": "/nodes/1/inputs", "value": ["fc"]}])", "model.nodes[1].inputs", "fc"},
      {R"([{"op": "add", "path": "/nodes/1/inputs", "value": ["conv1", "images"]}])", "model.nodes[1].inputs",
       "must be 1"},
      {R"([{"op": "add", "path": "/nodes/2/inputs", "value": ["conv1"]}])", "model.nodes", "bn1", "nothing reads"},
      {R"([{"op": "replace", "path": "/nodes/0/kernel", "value": 99}])", "model.nodes", "conv1", "at most"},
      {R"([{"op": "replace", "path": "/nodes/0/op", "value": "global_pool"}, {"op": "remove", "path": "/nodes/0/channels"},
           {"op": "remove", "path": "/nodes/0/kernel"}, {"op": "remove", "path": "/nodes/0/pad"}])",
       "model.nodes", "bn1"},
      {R"([{"op": "remove", "path": "/nodes/4"}])", "model.nodes", "must end", "loss_head"},
      {R"([{"op": "replace", "path": "/nodes", "value": []}])", "model.nodes", "must end"},
      {R"([{"op": "replace", "path": "/nodes", "value": 7}])", "model.nodes"},
      {R"([{"op": "replace", "path": "/nodes/4/bias", "value": 1}])", "model.nodes[4].bias", "true or false"},
      {R"([{"op": "replace", "path": "/image", "value": [28, 28]}])", "model.image", "[height, width, channels]"},
      {R"([{"op": "add", "path": "/graph", "value": "net.json"}])", "model.graph"},
      {R"([{"op": "add", "path": "/tied", "value": ["fc.weight"]}])", "model.tied", "each with that of another"},
      {R"([{"op": "add", "path": "/tied", "value": {"fc.weight": 1}}])", "model.tied.fc.weight", "name of a parameter"},
      {R"([{"op": "add", "path": "/tied", "value": {"fc.weights": "conv1.weight"}}])", "fc.weights",
       "is no parameter of a node"},
      {R"([{"op": "add", "path": "/tied", "value": {"fc.bias": "fc.bias"}}])", "fc.bias", "no node before it has"},
      {R"([{"op": "add", "path": "/tied", "value": {"fc.weight": "conv1.weight"}}])", "fc.weight", "[8,3,3,1]",
       "must be of [10,8]"},
  };
  const json right = json::parse(
      R"({"family": "net", "image": [28, 28, 1], "nodes": [{"op": "conv", "name": "conv1", "channels": 8, "kernel": 3, "pad": 1},
      {"op": "batch_norm", "name": "bn1"}, {"op": "relu", "name": "relu1"}, {"op": "global_pool", "name": "avgpool"},
      {"op": "loss_head", "name": "fc", "classes": 10, "bias": true}]})");
  EXPECT_NO_THROW(recipe_of(right));
  for (const Wrong& wrong : all) {
    SCOPED_TRACE(wrong.patch);
    expect_user_error([&] { recipe_of(right.patch(json::parse(wrong.patch))); },
                      {"net.json", wrong.first, wrong.second, wrong.third});
  }
}

}  // namespace
}  // namespace reprise::test
