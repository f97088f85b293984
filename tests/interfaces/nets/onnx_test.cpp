// Tests nets that torch's exporter wrote. Their rows and weights must equal those of the family,
// and refusals must name the node. The test encodes bad files field by field, because no exporter
// writes them.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "tests/interfaces/command_line.h"
#include "tests/interfaces/expect_user_error.h"
#include "tests/interfaces/nets/onnx_bytes.h"
#include "tools/files/io/output_file.h"
#include "tools/files/weights/weight_source.h"
#include "tools/plan/onnx/node_reader.h"
#include "tools/plan/planning/planner.h"
#include "tools/plan/recipes/recipe_graph.h"
#include "tools/run/nets/export_net.h"
#include "tools/run/nets/import_net.h"

namespace reprise::test {
namespace {

using nlohmann::json;

const std::string kGoldens = "tests/golden/onnx/";  // made by tests/parity/make_onnx_goldens.py

ImportOrder order_of(const std::string& file, const std::string& recipe) { return {file, recipe, {}, {}, "", ""}; }

OwnedPlan plan_of(const Recipe& recipe) {
  const SolvedModel model = solve_model(recipe);
  PlannedModel planned = plan_model(model, request_of(model));
  EXPECT_TRUE(planned.fits);
  return std::move(planned.plan);
}

std::vector<float> numbers_in(const WeightSource& source, const std::string& name) {
  uint64_t elements = 1;
  for (const uint64_t dimension : source.find(name)->shape) elements *= dimension;
  std::vector<float> numbers(elements);
  source.read(name, 0, elements, numbers.data());
  return numbers;
}

TEST(OnnxImport, HasTheRowsOfTheFamily) {
  const TemporaryFolder folder;
  const ImportReport report = import_net(order_of(kGoldens + "resnet.onnx", folder.file("net.json")));
  EXPECT_TRUE(report.refused.empty());
  Recipe imported = read_recipe(folder.file("net.json"));
  Recipe family = imported;
  family.model =
      parse_recipe(
          R"({"model": {"family": "resnet", "units": [1, 1, 1], "width": 4, "image": [16, 16, 3]}, "batch": 8})",
          "family.json", "/")
          .model;
  const OwnedPlan all = plan_of(family);
  for (const std::optional<uint64_t>& budget :
       {std::optional<uint64_t>(), std::optional<uint64_t>(report.smallest_budget_bytes)}) {
    imported.budget_bytes = family.budget_bytes = budget;
    const OwnedPlan ours = plan_of(imported), theirs = plan_of(family);
    EXPECT_EQ(ours.arena_bytes, theirs.arena_bytes);
    ASSERT_EQ(ours.state.size(), theirs.state.size());
    for (size_t i = 0; i < ours.state.size(); ++i) {
      EXPECT_STREQ(ours.state[i].name, theirs.state[i].name);
      EXPECT_EQ(ours.state[i].tensor.offset, theirs.state[i].tensor.offset);
    }
    for (size_t p = 0; p < std::size(ours.programs); ++p) {
      const auto& [a, b] = std::pair(ours.programs[p], theirs.programs[p]);
      ASSERT_EQ(a.rows.size(), b.rows.size());
      EXPECT_EQ(a.arguments, b.arguments);
      for (size_t r = 0; r < a.rows.size(); ++r) {
        EXPECT_EQ(a.rows[r].op, b.rows[r].op) << r;
        EXPECT_EQ(a.rows[r].pass, b.rows[r].pass) << r;
      }
    }
  }
}

TEST(OnnxImport, HasTheWeightsOfTheStateDict) {
  const TemporaryFolder folder;
  import_net(order_of(kGoldens + "resnet.onnx", folder.file("net.json")));
  const auto ours = open_weights(folder.file("net.safetensors")),
             theirs = open_weights(kGoldens + "resnet.safetensors");
  EXPECT_EQ(ours->names(), theirs->names());
  for (const std::string& name : theirs->names()) {
    EXPECT_EQ(ours->find(name)->shape, theirs->find(name)->shape) << name;
    EXPECT_EQ(numbers_in(*ours, name), numbers_in(*theirs, name)) << name;
  }
}

// Returns the numbers of a tensor of an imported net, in the memory order that the net's graph
// uses.
std::vector<float> numbers_of_graph(const TemporaryFolder& folder, const std::string& name) {
  return numbers_in(*as_graph_has(open_weights(folder.file("net.safetensors")),
                                  stored_forms(read_recipe(folder.file("net.json")))),
                    name);
}

class ImportCommand : public CommandLine {};

TEST_F(ImportCommand, MakesWhatIsTrained) {
  const std::string recipe = folder_.file("net.json");
  const json report = json_answer(
      {"import", kGoldens + "resnet.onnx", "-o", recipe, "--classes", "5", "--freeze", "layer1.*", "--json"});
  EXPECT_EQ(report.at("ops").at("conv"), 9);
  EXPECT_EQ(report.at("nodes"), report.at("model_nodes").get<int>() - report.at("left_out").get<int>());
  EXPECT_LT(report.at("trained_parameters"), report.at("parameters"));
  const Recipe read = read_recipe(recipe);
  EXPECT_EQ(describe_model(read.model).classes, 5);
  EXPECT_EQ(read.init.skip, (std::vector<std::string>{"fc.weight", "fc.bias"}));
  EXPECT_EQ(read.freeze, (std::vector<std::string>{"layer1.*"}));
  const std::string text = reprise_command({"import", kGoldens + "resnet.onnx", "-o", recipe}).out;
  for (const char* part : {"9 conv", "9 batch_norm", "links", "smallest budget"})
    EXPECT_NE(text.find(part), Text::npos) << text;
}

// Returns the names in the finding of this kind; empty if there is no such finding.
std::vector<std::string> found(const json& answer, const std::string& kind) {
  for (const json& finding : answer.at("findings")) {
    if (finding.at("kind") == kind) return finding.at("names");
  }
  return {};
}

TEST_F(ImportCommand, SaysWhatItGuessesAndTakesOrders) {
  const std::string file = "tests/golden/told/buffers.old.onnx", recipe = folder_.file("net.json");
  const json answer = json_answer({"import", file, "-o", recipe, "--json"});
  EXPECT_EQ(found(answer, "input"), (std::vector<std::string>{"mean", "std"}));
  EXPECT_EQ(found(answer, "whole"), std::vector<std::string>{"mask"});
  EXPECT_EQ(found(answer, "waves"), std::vector<std::string>{"waves"});
  EXPECT_EQ(found(answer, "own"), std::vector<std::string>{"places"});
  EXPECT_EQ(found(answer, "filter").size(), 1u);
  EXPECT_EQ(answer.at("outcomes").at("frozen").at("tensors"), 5);
  EXPECT_EQ(json_answer({"parameters", recipe, "--json"}).at("findings"), answer.at("findings"));
  const std::string text = reprise_command({"import", file, "-o", recipe}).out;
  for (const char* part :
       {"--train PATTERN", "--freeze PATTERN", "requires_grad=False", "there is no dropout in the file"})
    EXPECT_NE(text.find(part), Text::npos) << text;
  EXPECT_EQ(text.find("no mean and deviation"), Text::npos) << "the net has its own";
  const json trained = json_answer({"import", file, "-o", recipe, "--train", "wav*", "--json"});
  EXPECT_TRUE(found(trained, "waves").empty());
  EXPECT_EQ(trained.at("trained_parameters").get<int>(), answer.at("trained_parameters").get<int>() + 128);
  EXPECT_NE(reprise_command({"import", file, "-o", recipe, "--train", "nothing"}).err.find("--train"), Text::npos);
}

// padding_idx and scale_grad_by_freq are only in a .pt2.
TEST_F(ImportCommand, SaysThatEveryRowOfAnEmbeddingIsTrained) {
  const std::string recipe = folder_.file("net.json");
  const json answer = json_answer({"import", "tests/golden/nets/albert.new.onnx", "-o", recipe, "--json"});
  const std::vector<std::string> tables = found(answer, "every_row");
  EXPECT_FALSE(tables.empty());
  const auto weights = open_weights(folder_.file("net.safetensors"));
  for (const std::string& table : tables) EXPECT_NE(weights->find(table), nullptr) << table;
  const json of_pt2 = json_answer({"import", "tests/golden/nets/albert.pt2", "-o", recipe, "--json"});
  EXPECT_TRUE(found(of_pt2, "every_row").empty());
  EXPECT_TRUE(found(json_answer({"import", kGoldens + "resnet.onnx", "-o", recipe, "--json"}), "every_row").empty());
}

TEST_F(ImportCommand, AsksForMeanAndDeviation) {
  const std::string file = kGoldens + "resnet.onnx", recipe = folder_.file("net.json");
  EXPECT_NE(reprise_command({"import", file, "-o", recipe}).out.find("\"mean\": [0.485, 0.456, 0.406]"), Text::npos);
  const std::string tensors = reprise_command({"import", file, "-o", recipe, "--data", "tensors=x.safetensors"}).out;
  EXPECT_EQ(tensors.find("no mean and deviation"), Text::npos) << "their numbers are what the net reads";
}

// If an optimiser has removed the Identity nodes of a file, equal layers share one tensor. --untie
// gives each layer its own tensor.
TEST_F(ImportCommand, GivesEachItsOwnWhereItIsAsked) {
  Parts parts;
  parts.nodes = node("Conv", {"x", "c.weight"}, "a") + node("Conv", {"a", "c.weight"}, "b") +
                node("GlobalAveragePool", {"b"}, "g") + node("Flatten", {"g"}, "f") +
                node("Gemm", {"f", "fc.weight", "fc.bias"}, "y", integer("transB", 1));
  const float numbers[] = {0.5f, 1.5f};
  parts.constants =
      bytes(5, number(1, 1) + number(1, 1) + number(1, 1) + number(1, 2) + number(2, 1) + bytes(8, "c.weight") +
                   bytes(9, Text(reinterpret_cast<const char*>(numbers), sizeof numbers))) +
      bytes(5, tensor("fc.weight", {3, 1})) + bytes(5, tensor("fc.bias", {3}));
  write_file(folder_.file("two.onnx"), parts.file());
  const std::string recipe = folder_.file("net.json");
  const json shared = json_answer({"import", folder_.file("two.onnx"), "-o", recipe, "--json"});
  EXPECT_EQ(shared.at("outcomes").at("tied").at("tensors"), 1);
  EXPECT_EQ(found(shared, "tied").size(), 1u);
  const json own = json_answer({"import", folder_.file("two.onnx"), "-o", recipe, "--untie", "--json"});
  EXPECT_EQ(own.at("outcomes").at("tied").at("tensors"), 0);
  EXPECT_EQ(own.at("trained_parameters").get<int>(), shared.at("trained_parameters").get<int>() + 2);
}

// ---- files made field by field ----

class MadeFile : public ::testing::Test {
 protected:
  std::vector<std::string> refused(const Parts& parts, const ImportRequest& request = {}) {
    write_file(folder_.file("net.onnx"), parts.file());
    ImportOrder order = order_of(folder_.file("net.onnx"), folder_.file("net.json"));
    order.request = request;
    return import_net(order).refused;
  }
  void expect_refused(const Parts& parts, const std::vector<std::string>& words) {
    const std::vector<std::string> lines = refused(parts);
    ASSERT_FALSE(lines.empty()) << words[0];
    for (const std::string& word : words) {
      const auto has = [&](const std::string& line) { return line.find(word) != std::string::npos; };
      EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), has)) << word << " is not in " << json(lines).dump();
    }
    EXPECT_FALSE(std::filesystem::exists(folder_.file("net.json"))) << "nothing is written";
  }
  void expect_error(const Text& file, std::initializer_list<std::string> words) {
    write_file(folder_.file("net.onnx"), file);
    expect_user_error([&] { import_net(order_of(folder_.file("net.onnx"), folder_.file("net.json"))); }, words);
    EXPECT_FALSE(std::filesystem::exists(folder_.file("net.json"))) << "nothing is written";
  }
  const TemporaryFolder folder_;
};

TEST_F(MadeFile, IsRead) {
  EXPECT_TRUE(refused({}).empty());
  EXPECT_TRUE(std::filesystem::exists(folder_.file("net.json")));
  const auto weights = open_weights(folder_.file("net.safetensors"));
  EXPECT_EQ(weights->names(), (std::vector<std::string>{"c.weight", "fc.bias", "fc.weight"}));
}

// Returns the ops of the last `count` nodes of the imported net.
std::vector<std::string> last_ops(const std::string& recipe, size_t count) {
  const json graph = json::parse(read_file(recipe.substr(0, recipe.size() - 5) + ".graph.json"));
  std::vector<std::string> ops;
  for (const json& node : graph.at("nodes")) ops.push_back(node.at("op"));
  return {ops.end() - static_cast<ptrdiff_t>(count), ops.end()};
}

std::vector<json> nodes_of(const json& graph, const Text& op) {
  std::vector<json> found;
  for (const json& each : graph.at("nodes")) {
    if (each.at("op") == op) found.push_back(each);
  }
  return found;
}
Text constant(const Text& output, const Text& stored) {
  return node("Constant", {}, output, bytes(5, bytes(1, "value") + bytes(5, stored) + number(20, 4)));
}
const Text kMean = node("GlobalAveragePool", {"r"}, "g") + node("Flatten", {"g"}, "f");
const Text kHead = node("Gemm", {"f", "fc.weight", "fc.bias"}, "y", integer("transB", 1));

// Exporters give constants of several nodes the same name, or no name.
TEST_F(MadeFile, TellsConstantsOfOneNameApart) {
  Parts parts;
  parts.nodes = node("Conv", {"x", "c.weight"}, "a") + constant("p", tensor("value", {4, 1, 1}, 2)) +
                constant("q", tensor("value", {4, 1, 1}, 3)) + node("Mul", {"a", "p"}, "b") +
                node("Mul", {"b", "q"}, "r") + kMean + kHead;
  EXPECT_TRUE(refused(parts).empty());
  const auto weights = open_weights(folder_.file("net.safetensors"));
  const Recipe recipe = read_recipe(folder_.file("net.json"));
  ASSERT_EQ(recipe.freeze.size(), 2u) << "what is no parameter of the model is not trained";
  EXPECT_EQ(numbers_in(*weights, recipe.freeze[0]), std::vector<float>(4, 2));
  EXPECT_EQ(numbers_in(*weights, recipe.freeze[1]), std::vector<float>(4, 3));
}

// Returns a constant "p" with the numbers 0, 1, 2, ..., which restart at 0 after `period` numbers.
Text counted(const std::vector<uint64_t>& shape, uint64_t period) {
  Text message, raw;
  uint64_t elements = 1;
  for (const uint64_t d : shape) message += number(1, d), elements *= d;
  for (uint64_t i = 0; i < elements; ++i) {
    const float number = static_cast<float>(i % period);
    raw.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
  return bytes(5, message + number(2, 1) + bytes(8, "p") + bytes(9, raw));
}
// Returns the numbers of a sample [C,places] in the order of the net, [places,C].
std::vector<float> counted_by_place(int channels, int places) {
  std::vector<float> numbers;
  for (int place = 0; place < places; ++place) {
    for (int c = 0; c < channels; ++c) numbers.push_back(static_cast<float>(c * places + place));
  }
  return numbers;
}

// For a fixed batch size, exporters write equal numbers for each sample. The import keeps one copy,
// and does not train the numbers.
TEST_F(MadeFile, ReadsNumbersOfAWholeBatchThatItsSamplesShare) {
  Parts parts;
  parts.input = value(11, "x", {2, 1, 6, 6}), parts.output = value(12, "y", {2, 3});
  parts.nodes = node("Conv", {"x", "c.weight"}, "a") + node("Add", {"p", "a"}, "r") + kMean + kHead;
  const Text constants = parts.constants;
  parts.constants = constants + counted({2, 4, 6, 6}, 4 * 6 * 6);
  EXPECT_TRUE(refused(parts).empty());
  EXPECT_EQ(read_recipe(folder_.file("net.json")).freeze, std::vector<std::string>{"p"});
  EXPECT_EQ(numbers_of_graph(folder_, "p"), counted_by_place(4, 6 * 6));
  std::filesystem::remove(folder_.file("net.json"));
  parts.constants = constants + counted({2, 4, 6, 6}, 2 * 4 * 6 * 6);
  expect_refused(parts, {"r_node", "has numbers of its own for each sample of a batch"});
}

// Tests a class token that the file stores once for each sample of a batch. Exporters compute the
// token's Expand node for the batch size of their input, also if it is 1.
TEST_F(MadeFile, PutsNumbersOfAWholeBatchBesideValues) {
  Parts parts;
  parts.nodes =
      node("Conv", {"x", "c.weight"}, "a") + node("Concat", {"p", "a"}, "r", integer("axis", 2)) + kMean + kHead;
  const Text constants = parts.constants;
  for (const uint64_t batch : {1, 2}) {
    const auto of_batch = static_cast<int64_t>(batch);
    parts.input = value(11, "x", {of_batch, 1, 6, 6}), parts.output = value(12, "y", {of_batch, 3});
    parts.constants = constants + counted({batch, 4, 1, 6}, 4 * 6);
    EXPECT_EQ(refused(parts), std::vector<std::string>()) << batch;
    EXPECT_EQ(numbers_of_graph(folder_, "p"), counted_by_place(4, 6)) << batch;
    EXPECT_EQ(read_recipe(folder_.file("net.json")).freeze, std::vector<std::string>{"p"})
        << "of a whole batch, or whole numbers, as a mask has";
    std::filesystem::remove(folder_.file("net.json"));
  }
  parts.constants = constants + counted({2, 4, 1, 6}, 2 * 4 * 6);
  expect_refused(parts, {"r_node", "repeated along the batch"});
}

// A value that is computed from constants alone exists once for all samples. It can be added to a
// value that each sample has, but a concatenation with such a value is refused.
TEST_F(MadeFile, ComputesOnceWhatAllSamplesShare) {
  Parts parts;
  const Text once = node("Conv", {"x", "c.weight"}, "a") + node("Shape", {"a"}, "s") + node("Expand", {"p", "s"}, "e") +
                    node("Softmax", {"e"}, "q");
  parts.constants += bytes(5, tensor("p", {1, 4, 6, 6}));
  parts.nodes = once + node("Add", {"q", "a"}, "r") + kMean + kHead;
  EXPECT_TRUE(refused(parts).empty());
  const json graph = json::parse(read_file(folder_.file("net.graph.json")));
  ASSERT_EQ(nodes_of(graph, "softmax").size(), 1u);
  EXPECT_EQ(nodes_of(graph, "add")[0].at("inputs")[0], "c") << "what each sample has stands first";
  std::filesystem::remove(folder_.file("net.json"));
  parts.nodes = once + node("Concat", {"a", "q"}, "r", integer("axis", 2)) + kMean + kHead;
  expect_refused(parts, {"reads what is the same for each sample beside what is not"});
  parts.nodes = once + node("Dropout", {"q"}, "d") + node("Add", {"d", "a"}, "r") + kMean + kHead;
  expect_refused(parts, {"does with each sample something else"});
}

// A value without elements must be refused. Otherwise the sizes of other axes would be divided by
// an axis of size 0.
TEST_F(MadeFile, RefusesAValueWithoutNumbers) {
  Parts parts;
  parts.nodes = node("Conv", {"x", "c.weight"}, "a") + node("Relu", {"a"}, "r") + kMean +
                node("MatMul", {"f", "none"}, "h") + node("Add", {"h", "three"}, "k") +
                node("MatMul", {"k", "behind"}, "y");
  parts.constants +=
      bytes(5, tensor("none", {4, 0})) + bytes(5, tensor("behind", {0, 3})) + bytes(5, tensor("three", {3}));
  expect_refused(parts, {"h_node", ",0], which holds no numbers"});
}

// Exporters merge equal tensors. Here a factor and the bias of a layer are merged to "out.bias".
// The factor keeps this name, and the layer's bias must get a name of its own.
TEST_F(MadeFile, NamesALayerByABiasThatAnotherNodeLearns) {
  Parts parts;
  parts.nodes = node("Conv", {"x", "c.weight"}, "a") + node("Relu", {"a"}, "r") + kMean +
                node("Gemm", {"f", "fc.weight"}, "h", integer("transB", 1)) + node("Mul", {"h", "out.bias"}, "m") +
                node("MatMul", {"m", "turned"}, "k") + node("Add", {"k", "out.bias"}, "y");
  parts.constants += bytes(5, tensor("out.bias", {3}, 0.25f)) + bytes(5, tensor("turned", {3, 3}));
  EXPECT_TRUE(refused(parts).empty());
  const auto weights = open_weights(folder_.file("net.safetensors"));
  EXPECT_EQ(weights->names(), (std::vector<std::string>{"c.weight", "fc.weight", "k_node.bias", "out.bias", "turned"}));
  EXPECT_EQ(numbers_in(*weights, "k_node.bias"), numbers_in(*weights, "out.bias"));
}

// transformers (gelu_new, gelu_fast) and torch's exporters write GELU's tanh form in several ways.
// Each must become one gelu node. With another constant the nodes must not be taken for a GELU.
TEST_F(MadeFile, ReadsAGeluByTanhHoweverItIsSpelt) {
  const auto scalar = [](const Text& name, float number) { return bytes(5, tensor(name, {}, number)); };
  const Text numbers = scalar("half", 0.5f) + scalar("one", 1) + scalar("three", 3) + scalar("root", 0.7978845608f) +
                       scalar("cube", 0.044715f);
  const Text behind = node("Tanh", {"k"}, "t") + node("Add", {"t", "one"}, "t1");
  const Text chains[] = {
      node("Pow", {"r", "three"}, "r3") + node("Mul", {"r3", "cube"}, "c3") + node("Add", {"r", "c3"}, "s") +
          node("Mul", {"s", "root"}, "k") + behind + node("Mul", {"r", "half"}, "h") + node("Mul", {"h", "t1"}, "u"),
      node("Mul", {"r", "r"}, "r2") + node("Mul", {"r", "r2"}, "r3") + node("Mul", {"cube", "r3"}, "c3") +
          node("Add", {"r", "c3"}, "s") + node("Mul", {"root", "s"}, "k") + behind + node("Mul", {"r", "t1"}, "h") +
          node("Mul", {"half", "h"}, "u"),
      node("Mul", {"r", "cube"}, "c1") + node("Mul", {"c1", "r"}, "c2") + node("Add", {"c2", "one"}, "s") +
          node("Mul", {"r", "root"}, "q") + node("Mul", {"q", "s"}, "k") + behind + node("Mul", {"r", "half"}, "h") +
          node("Mul", {"h", "t1"}, "u"),
  };
  const auto parts_of = [&](const Text& chain, const Text& constants) {
    Parts parts;
    parts.nodes = node("Conv", {"x", "c.weight"}, "a") + node("Relu", {"a"}, "r") + chain +
                  node("GlobalAveragePool", {"u"}, "g") + node("Flatten", {"g"}, "f") +
                  node("Gemm", {"f", "fc.weight", "fc.bias"}, "y", integer("transB", 1));
    parts.constants += constants;
    return parts;
  };
  for (const Text& chain : chains) {
    EXPECT_EQ(refused(parts_of(chain, numbers)), std::vector<std::string>());
    EXPECT_EQ(last_ops(folder_.file("net.json"), 5),
              (std::vector<std::string>{"conv", "relu", "gelu", "global_pool", "loss_head"}));
    const json graph = json::parse(read_file(folder_.file("net.graph.json")));
    EXPECT_EQ(nodes_of(graph, "gelu").at(0).at("tanh"), true);
  }
  const Text other = scalar("half", 0.5f) + scalar("one", 1) + scalar("three", 3) + scalar("root", 0.7978845608f) +
                     scalar("cube", 0.05f);
  EXPECT_EQ(refused(parts_of(chains[0], other)), std::vector<std::string>());
  const json graph = json::parse(read_file(folder_.file("net.graph.json")));
  EXPECT_EQ(nodes_of(graph, "gelu").size(), 0u);
  EXPECT_EQ(nodes_of(graph, "tanh").size(), 1u);
  EXPECT_EQ(nodes_of(graph, "multiply").size(), 3u) << "r r, r r r, and the last";
}

// Returns a language model with four positions and five different tokens. It predicts the next
// token from the token at the position alone. All numbers of the head are `of_head`.
Parts language_parts(float of_head) {
  Parts parts;
  parts.nodes = node("Gather", {"wte.weight", "ids"}, "e") + node("MatMul", {"e", "h.weight"}, "y");
  parts.constants = bytes(5, tensor("wte.weight", {5, 3})) + bytes(5, tensor("h.weight", {3, 5}, of_head));
  parts.input =
      bytes(11, bytes(1, "ids") +
                    bytes(2, bytes(1, number(1, 7) + bytes(2, bytes(1, bytes(2, "n")) + bytes(1, number(1, 4))))));
  parts.output = value(12, "y", {-1, 4, 5});
  return parts;
}

TEST_F(MadeFile, OfALanguageModelMayShareItsTable) {
  for (const auto& [of_head, is_tied] : {std::pair(0.5f, true), {0.25f, false}}) {
    EXPECT_EQ(refused(language_parts(of_head)), std::vector<std::string>());
    const Recipe recipe = read_recipe(folder_.file("net.json"));
    EXPECT_EQ(recipe.sequence, 4);
    EXPECT_EQ(describe_model(recipe.model).vocabulary, 5);
    const json graph = json::parse(read_file(folder_.file("net.graph.json")));
    EXPECT_EQ(graph.at("nodes").back().at("op"), "loss_head");
    EXPECT_EQ(graph.contains("tied"), is_tied);
    EXPECT_EQ(open_weights(folder_.file("net.safetensors"))->names().size(), is_tied ? 1u : 2u);
  }
}

TEST_F(MadeFile, OfALanguageModelIsRefusedWhereItIsNone) {
  Parts parts = language_parts(0.5f);
  EXPECT_TRUE(refused(parts, {.classes = 3, .inputs = {}, .loss = ""})
                  .at(0)
                  .find("whose classes are its tokens; leave --classes out") != Text::npos);
  parts.nodes += node("Relu", {"y"}, "r");
  parts.output = value(12, "r", {-1, 4, 5});
  expect_refused(parts, {"output \"r\"", "language model alone", "a linear layer"});
  // In this net every token attends to every token, also to later ones.
  parts.nodes = node("Gather", {"wte.weight", "ids"}, "e") +
                node("Transpose", {"e"}, "t", integers("perm", {0, 2, 1})) + node("MatMul", {"e", "t"}, "s") +
                node("Softmax", {"s"}, "w") + node("MatMul", {"w", "e"}, "a") + node("MatMul", {"a", "h.weight"}, "y");
  parts.output = value(12, "y", {-1, 4, 5});
  expect_error(parts.file(), {"reads tokens behind", "attention must be causal"});
}

// torch's newer exporter may write a reshape as a change of strides. The file then computes indices
// into the flattened value, for each sample of the batch.
TEST_F(MadeFile, ReadsPlacesThatAreAllInTheirOrder) {
  const auto places = [](int64_t rows_apart) {
    Parts parts;
    const auto constant = [](const Text& name, const std::vector<int64_t>& shape, const std::vector<int64_t>& values) {
      Text message, raw;
      for (const int64_t d : shape) message += number(1, static_cast<uint64_t>(d));
      for (const int64_t v : values) raw.append(reinterpret_cast<const char*>(&v), sizeof v);
      return bytes(5, message + number(2, 7) + bytes(8, name) + bytes(9, raw));
    };
    parts.nodes = node("Conv", {"x", "c.weight"}, "a") + node("GlobalAveragePool", {"a"}, "g") +
                  node("Shape", {"x"}, "s") + node("Gather", {"s", "zero"}, "n") +
                  node("Range", {"zero", "n", "one"}, "i") + node("Mul", {"i", "apart"}, "j") +
                  node("Unsqueeze", {"j", "axes"}, "k") + node("Add", {"k", "channels"}, "at") +
                  node("Reshape", {"g", "flat"}, "h") + node("Gather", {"h", "at"}, "f") +
                  node("Gemm", {"f", "fc.weight", "fc.bias"}, "y", integer("transB", 1));
    parts.constants += constant("zero", {}, {0}) + constant("one", {}, {1}) + constant("apart", {}, {rows_apart}) +
                       constant("axes", {1}, {1}) + constant("channels", {1, 4}, {0, 1, 2, 3}) +
                       constant("flat", {1}, {-1});
    return parts;
  };
  EXPECT_EQ(refused(places(4)), std::vector<std::string>());
  EXPECT_EQ(last_ops(folder_.file("net.json"), 2), (std::vector<std::string>{"global_pool", "loss_head"}));
  std::filesystem::remove(folder_.file("net.json"));
  expect_refused(places(3), {"f_node"});
}

// A new head initialises its own tensors, but not other tensors whose names begin with the same
// part.
TEST_F(MadeFile, KeepsWhatIsNotTheNewHead) {
  Parts parts;
  parts.nodes = node("Conv", {"x", "fc.stem.weight"}, "a") + node("GlobalAveragePool", {"a"}, "g") +
                node("Flatten", {"g"}, "f") + node("Gemm", {"f", "fc.weight"}, "y", integer("transB", 1));
  parts.constants = bytes(5, tensor("fc.stem.weight", {4, 1, 1, 1})) + bytes(5, tensor("fc.weight", {3, 4}));
  EXPECT_TRUE(refused(parts, {.classes = 7, .inputs = {}, .loss = ""}).empty());
  const Recipe recipe = read_recipe(folder_.file("net.json"));
  EXPECT_EQ(recipe.init.skip, (std::vector<std::string>{"fc.weight"}));
  EXPECT_EQ(open_weights(recipe.init.from)->names(), (std::vector<std::string>{"fc.stem.weight"}));
}

TEST_F(MadeFile, MayEndInAnythingWithALoss) {
  using Target = ModelDescription::Target;
  const std::string recipe = folder_.file("net.json");
  Parts map;  // ends like a segmentation net
  map.nodes = node("Conv", {"x", "c.weight"}, "r") + node("Conv", {"r", "last.weight"}, "y");
  map.constants = bytes(5, tensor("c.weight", {4, 1, 1, 1})) + bytes(5, tensor("last.weight", {3, 4, 1, 1}));
  map.output = value(12, "y", {-1, 3, 6, 6});
  expect_refused(map, {"output \"y\": is [N,3,6,6]; must be a classifier's logits, [N,K]", "--loss"});
  EXPECT_TRUE(refused(map, {.classes = 0, .inputs = {}, .loss = "class_loss"}).empty());
  EXPECT_EQ(last_ops(recipe, 2), (std::vector<std::string>{"conv", "class_loss"}));
  ModelDescription model = describe_model(read_recipe(recipe).model);
  EXPECT_TRUE(model.target == Target::kClassMap && model.classes == 3);
  EXPECT_EQ(model.output, (std::vector<uint32_t>{6, 6, 3}));
  EXPECT_TRUE(refused(map, {.classes = 5, .inputs = {}, .loss = "class_loss"}).empty());
  EXPECT_EQ(describe_model(read_recipe(recipe).model).classes, 5);
  EXPECT_EQ(read_recipe(recipe).init.skip, (std::vector<std::string>{"last.weight"}));

  Parts pooled = map;  // ends like SqueezeNet
  pooled.nodes = node("Conv", {"x", "c.weight"}, "r") + node("Conv", {"r", "last.weight"}, "l") +
                 node("Relu", {"l"}, "p") + node("GlobalAveragePool", {"p"}, "g") + node("Flatten", {"g"}, "y");
  pooled.output = value(12, "y", {-1, 3});
  EXPECT_TRUE(refused(pooled, {.classes = 7, .inputs = {}, .loss = "class_loss"}).empty());
  model = describe_model(read_recipe(recipe).model);
  EXPECT_TRUE(model.target == Target::kClass && model.classes == 7);
  EXPECT_TRUE(refused(pooled, {.classes = 0, .inputs = {}, .loss = "huber_loss"}).empty());
  EXPECT_TRUE(describe_model(read_recipe(recipe).model).target == Target::kNumbers);
}

// Nodes after the head's layers that do not mix the classes get the new number of classes, too.
TEST_F(MadeFile, HasANewHeadOfAnyForm) {
  const auto c = [](const Text& name, const std::vector<uint64_t>& shape) { return bytes(5, tensor(name, shape)); };
  const Text pooled =
      node("Conv", {"x", "c.weight"}, "a") + node("Relu", {"a"}, "r") + node("GlobalAveragePool", {"r"}, "g");
  const Text stem = c("c.weight", {4, 1, 1, 1}), conv = c("last.weight", {3, 4, 1, 1}) + c("last.bias", {3}),
             linear = c("fc.weight", {3, 4}) + c("fc.bias", {3});
  const Text transposed = integer("transB", 1);
  const Text norm = c("n.weight", {3}) + c("n.bias", {3}) + c("n.running_mean", {3}) + c("n.running_var", {3});
  struct Head {
    const char* name;
    Text nodes, constants;
    std::vector<std::string> drawn, ops;
  };
  const std::vector<Head> heads = {
      {"pool, conv, activation, flatten, linear (MobileNetV3 of timm)",
       pooled + node("Conv", {"g", "h.weight"}, "h") + node("HardSwish", {"h"}, "s") + node("Flatten", {"s"}, "f") +
           node("Gemm", {"f", "fc.weight", "fc.bias"}, "y", transposed),
       c("h.weight", {4, 4, 1, 1}) + linear,
       {"fc.weight", "fc.bias"},
       {"hardswish", "reshape", "loss_head"}},
      {"conv, pool, flatten (SqueezeNet)",
       node("Conv", {"x", "c.weight"}, "a") + node("Dropout", {"a"}, "d") +
           node("Conv", {"d", "last.weight", "last.bias"}, "l") + node("Relu", {"l"}, "r") +
           node("GlobalAveragePool", {"r"}, "g") + node("Flatten", {"g"}, "y"),
       conv,
       {"last.weight", "last.bias"},
       {"conv", "relu", "global_pool", "class_loss"}},
      {"pool, conv, flatten",
       pooled + node("Conv", {"g", "last.weight"}, "l") + node("Flatten", {"l"}, "y"),
       conv,
       {"last.weight"},
       {"conv", "reshape", "class_loss"}},
      {"pool, conv, a map of one place",
       pooled + node("Conv", {"g", "last.weight"}, "y"),
       conv,
       {"last.weight"},
       {"conv", "reshape", "class_loss"}},
      {"conv, norm, activation, pool",
       node("Conv", {"x", "c.weight"}, "a") + node("Conv", {"a", "last.weight"}, "l") +
           node("BatchNormalization", {"l", "n.weight", "n.bias", "n.running_mean", "n.running_var"}, "b") +
           node("Relu", {"b"}, "r") + node("GlobalAveragePool", {"r"}, "g") + node("Flatten", {"g"}, "y"),
       conv + norm,
       {"last.weight", "n.weight", "n.bias", "n.running_mean", "n.running_var"},
       {"conv", "batch_norm", "relu", "global_pool", "class_loss"}},
      {"the mean of two linear layers (DeiT)",
       pooled + node("Flatten", {"g"}, "f") + node("Gemm", {"f", "fc.weight", "fc.bias"}, "u", transposed) +
           node("Gemm", {"f", "fd.weight"}, "v", transposed) + node("Add", {"u", "v"}, "y"),
       linear + c("fd.weight", {3, 4}),
       {"fc.weight", "fc.bias", "fd.weight"},
       {"linear", "linear", "add", "class_loss"}},
      {"a bias of its own",
       pooled + node("Flatten", {"g"}, "f") + node("Gemm", {"f", "fc.weight"}, "u", transposed) +
           node("Mul", {"u", "gain"}, "v") + node("Relu", {"v"}, "y"),
       linear + c("gain", {3}),
       {"fc.weight", "gain"},
       {"linear", "learned", "multiply", "relu", "class_loss"}},
      {"a transposed convolution",
       node("Conv", {"x", "c.weight"}, "a") + node("ConvTranspose", {"a", "up.weight"}, "u") +
           node("GlobalAveragePool", {"u"}, "g") + node("Flatten", {"g"}, "y"),
       c("up.weight", {4, 3, 2, 2}),
       {"up.weight"},
       {"conv_transpose", "global_pool", "class_loss"}},
  };
  for (const Head& head : heads) {
    Parts parts;
    parts.nodes = head.nodes, parts.constants = stem + head.constants;
    parts.opset = 14;
    if (std::string(head.name).ends_with("one place")) parts.output = value(12, "y", {-1, 3, 1, 1});
    ASSERT_EQ(refused(parts, {.classes = 7, .inputs = {}, .loss = ""}), std::vector<std::string>()) << head.name;
    const Recipe recipe = read_recipe(folder_.file("net.json"));
    EXPECT_EQ(recipe.init.skip, head.drawn) << head.name;
    EXPECT_EQ(last_ops(folder_.file("net.json"), head.ops.size()), head.ops) << head.name;
    EXPECT_EQ(describe_model(recipe.model).classes, 7) << head.name;
    EXPECT_NO_THROW(build_model(recipe)) << head.name;
  }
  Parts parts;  // a net whose channels do not come from a layer with weights
  parts.nodes = node("Conv", {"x", "c.weight"}, "a") + node("Concat", {"a", "a"}, "k", integer("axis", 1)) +
                node("GlobalAveragePool", {"k"}, "g") + node("Flatten", {"g"}, "y");
  parts.constants = stem, parts.output = value(12, "y", {-1, 8});
  const std::vector<std::string> reasons = refused(parts, {.classes = 7, .inputs = {}, .loss = ""});
  ASSERT_EQ(reasons.size(), 1u);
  EXPECT_NE(reasons[0].find("--classes: its channels are those of node \"k_node\" (concat), not of a linear layer or a "
                            "convolution; without --classes its 8 stay"),
            Text::npos)
      << reasons[0];
}

// The division is written like torch.nn.functional.normalize. A loss of pairs contains this
// division, so the net must not repeat it.
TEST_F(MadeFile, MayEndInADivisionByTheLength) {
  const std::string recipe = folder_.file("net.json");
  const Text before = node("Conv", {"x", "c.weight"}, "a") + node("GlobalAveragePool", {"a"}, "g") +
                      node("Flatten", {"g"}, "f") +
                      node("Gemm", {"f", "fc.weight", "fc.bias"}, "z", integer("transB", 1));
  Parts parts;
  const auto divided = [&](const Text& of, int64_t axis) {
    return before + node("ReduceL2", {of}, "l", integers("axes", {axis}) + integer("keepdims", 1)) +
           node("Clip", {"l"}, "k") + node("Shape", {"z"}, "s") + node("Expand", {"k", "s"}, "e") +
           node("Div", {"z", "e"}, "y");
  };
  for (const char* loss : {"infonce_loss", "cosine_loss", "similarity_loss"}) {
    parts.nodes = divided("z", -1);
    EXPECT_TRUE(refused(parts, {.classes = 0, .inputs = {}, .loss = loss}).empty()) << loss;
    EXPECT_EQ(last_ops(recipe, 2), (std::vector<std::string>{"linear", loss}));
    EXPECT_TRUE(describe_model(read_recipe(recipe).model).has_pairs());
    parts.nodes = before + node("Relu", {"z"}, "y");
    EXPECT_TRUE(refused(parts, {.classes = 0, .inputs = {}, .loss = loss}).empty()) << loss;
    EXPECT_EQ(last_ops(recipe, 2), (std::vector<std::string>{"relu", loss}));
  }
  parts.nodes = divided("z", 0);  // divides each number by numbers of other samples
  EXPECT_FALSE(refused(parts, {.classes = 0, .inputs = {}, .loss = "infonce_loss"}).empty());
  // A division by another length, or before a loss of another kind, stays part of the net.
  for (const auto& [of, loss] : {std::pair("f", "infonce_loss"), {"z", "mse_loss"}}) {
    parts.nodes = divided(of, -1);
    EXPECT_EQ(refused(parts, {.classes = 0, .inputs = {}, .loss = loss}), std::vector<std::string>()) << loss;
    EXPECT_EQ(last_ops(recipe, 5), (std::vector<std::string>{"sqrt", "reciprocal", "multiply", "scale", loss}));
  }
  Parts map;
  map.nodes = node("Conv", {"x", "c.weight"}, "y");
  map.constants = bytes(5, tensor("c.weight", {4, 1, 1, 1}));
  map.output = value(12, "y", {-1, 4, 6, 6});
  const std::vector<std::string> reasons = refused(map, {.classes = 0, .inputs = {}, .loss = "infonce_loss"});
  ASSERT_EQ(reasons.size(), 1u);
  EXPECT_NE(reasons[0].find("a vector of each input, [N,K]"), Text::npos) << reasons[0];
}

// The loss contains the softmax or sigmoid, so the net must not compute it a second time.
TEST_F(MadeFile, MayEndInASoftmaxOrASigmoid) {
  const std::string recipe = folder_.file("net.json");
  Parts parts;
  const Text before = node("Conv", {"x", "c.weight"}, "a") + node("GlobalAveragePool", {"a"}, "g") +
                      node("Flatten", {"g"}, "f") +
                      node("Gemm", {"f", "fc.weight", "fc.bias"}, "z", integer("transB", 1));
  parts.nodes = before + node("Softmax", {"z"}, "y", integer("axis", -1));
  EXPECT_TRUE(refused(parts).empty());
  EXPECT_EQ(last_ops(recipe, 2), (std::vector<std::string>{"global_pool", "loss_head"}));
  EXPECT_TRUE(refused(parts, {.classes = 0, .inputs = {}, .loss = "class_loss"}).empty());
  EXPECT_EQ(last_ops(recipe, 2), (std::vector<std::string>{"linear", "class_loss"}));
  std::filesystem::remove(recipe);
  parts.nodes = before + node("Softmax", {"z"}, "y", integer("axis", 0));
  expect_refused(parts, {"softmax along axis 0", "axis 1"});
  parts.nodes = before + node("Sigmoid", {"z"}, "y");
  EXPECT_TRUE(refused(parts, {.classes = 0, .inputs = {}, .loss = "binary_loss"}).empty());
  EXPECT_EQ(last_ops(recipe, 2), (std::vector<std::string>{"linear", "binary_loss"}));
  EXPECT_TRUE(refused(parts, {.classes = 0, .inputs = {}, .loss = "mse_loss"}).empty());
  EXPECT_EQ(last_ops(recipe, 2), (std::vector<std::string>{"sigmoid", "mse_loss"}))
      << "numbers from 0 to 1 are the net's own";
}

// The Gemm of this file has no transB, so its matrix is [in, out].
TEST_F(MadeFile, MayHaveTransposedMatrices) {
  Parts parts;
  parts.nodes =
      parts.nodes.substr(0, parts.nodes.size() -
                                node("Gemm", {"f", "fc.weight", "fc.bias"}, "y", integer("transB", 1)).size());
  parts.nodes += node("Gemm", {"f", "fc.weight", "fc.bias"}, "y");
  Text matrix = number(1, 4) + number(1, 3) + number(2, 1) + bytes(8, "fc.weight"), raw;
  for (int i = 0; i < 12; ++i) {
    const float n = static_cast<float>(i);
    raw.append(reinterpret_cast<const char*>(&n), sizeof n);
  }
  parts.constants =
      bytes(5, tensor("c.weight", {4, 1, 1, 1})) + bytes(5, matrix + bytes(9, raw)) + bytes(5, tensor("fc.bias", {3}));
  EXPECT_TRUE(refused(parts).empty());
  EXPECT_EQ(numbers_of_graph(folder_, "fc.weight"), (std::vector<float>{0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11}));
}

// x + norm(x) becomes norm(x) + x, which needs less memory.
TEST_F(MadeFile, HasTheNormOfASumFirst) {
  const Text vectors = bytes(5, tensor("n.weight", {4})) + bytes(5, tensor("n.bias", {4})) +
                       bytes(5, tensor("n.running_mean", {4})) + bytes(5, tensor("n.running_var", {4}));
  for (const auto& inputs : {std::vector<Text>{"a", "b"}, {"b", "a"}}) {
    Parts parts;
    parts.nodes = node("Conv", {"x", "c.weight"}, "a") +
                  node("BatchNormalization", {"a", "n.weight", "n.bias", "n.running_mean", "n.running_var"}, "b") +
                  node("Add", inputs, "s") + node("Relu", {"s"}, "r") + node("GlobalAveragePool", {"r"}, "g") +
                  node("Flatten", {"g"}, "f") + node("Gemm", {"f", "fc.weight", "fc.bias"}, "y", integer("transB", 1));
    parts.constants += vectors;
    EXPECT_TRUE(refused(parts).empty());
    EXPECT_EQ(nodes_of(json::parse(read_file(folder_.file("net.graph.json"))), "add").at(0).at("inputs"),
              (json{"n", "c"}));
  }
}

// In a net with a convolution the matrix of every linear layer is [out,in], even if the file stores
// it as [in,out].
TEST_F(MadeFile, HasLayersThatLieAlike) {
  Parts parts;
  const Text head = node("Gemm", {"f", "fc.weight", "fc.bias"}, "y", integer("transB", 1));
  parts.nodes = parts.nodes.substr(0, parts.nodes.size() - head.size()) + node("MatMul", {"f", "m.weight"}, "h") +
                node("Gemm", {"h", "fc.weight", "fc.bias"}, "y", integer("transB", 1));
  Text raw;
  for (int i = 0; i < 8; ++i) {
    const float n = static_cast<float>(i);
    raw.append(reinterpret_cast<const char*>(&n), sizeof n);
  }
  parts.constants = bytes(5, tensor("c.weight", {4, 1, 1, 1})) +
                    bytes(5, number(1, 4) + number(1, 2) + number(2, 1) + bytes(8, "m.weight") + bytes(9, raw)) +
                    bytes(5, tensor("fc.weight", {3, 2})) + bytes(5, tensor("fc.bias", {3}));
  EXPECT_TRUE(refused(parts).empty());
  const json linear = nodes_of(json::parse(read_file(folder_.file("net.graph.json"))), "linear").at(0);
  EXPECT_FALSE(linear.contains("input_major"));
  EXPECT_EQ(numbers_of_graph(folder_, "m.weight"), (std::vector<float>{0, 2, 4, 6, 1, 3, 5, 7}));
}

json graph_at(const std::string& recipe) {
  return json::parse(read_file(recipe.substr(0, recipe.size() - 5) + ".graph.json"));
}
// If the numbers of an axis are not contiguous, they are made contiguous before a concatenation.
TEST_F(MadeFile, PutsAxesTogether) {
  Parts parts;
  parts.nodes = node("Conv", {"x", "c.weight"}, "a") +
                constant("s", bytes(7, varint(static_cast<uint64_t>(-1)) + varint(4) + varint(2) + varint(18)) +
                                  number(1, 4) + number(2, 7)) +
                node("Reshape", {"a", "s"}, "b") + node("Transpose", {"b"}, "d", integers("perm", {0, 2, 1, 3})) +
                constant("t", bytes(7, varint(static_cast<uint64_t>(-1)) + varint(8) + varint(18)) + number(1, 3) +
                                  number(2, 7)) +
                node("Reshape", {"d", "t"}, "e") + node("Concat", {"e", "e"}, "h", integer("axis", 2)) +
                node("ReduceMean", {"h"}, "f", integers("axes", {2}) + integer("keepdims", 0)) +
                node("Gemm", {"f", "fc.weight", "fc.bias"}, "y", integer("transB", 1));
  parts.constants = bytes(5, tensor("c.weight", {4, 1, 1, 1})) + bytes(5, tensor("fc.weight", {3, 8})) +
                    bytes(5, tensor("fc.bias", {3}));
  EXPECT_TRUE(refused(parts).empty());
  const json graph = graph_at(folder_.file("net.json"));
  ASSERT_EQ(nodes_of(graph, "transpose").size(), 2u);
  EXPECT_EQ(nodes_of(graph, "transpose")[1].at("order"), json({2, 1}))
      << "for the mean: what was put together lies as [N,8,36]";
}

// Two heads of q share one head of k and v. Because q, k and v are parts of one layer's output, the
// attention must read this output directly.
TEST_F(MadeFile, ReadsPackedHeads) {
  Parts parts;
  parts.nodes = node("Squeeze", {"x"}, "s", integers("axes", {1})) + node("MatMul", {"s", "qkv.weight"}, "p") +
                bytes(1, bytes(1, "p") + bytes(2, "q") + bytes(2, "k") + bytes(2, "v") + bytes(3, "split") +
                             bytes(4, "Split") + integer("axis", 2) + integers("split", {4, 2, 2})) +
                node("Attention", {"q", "k", "v"}, "o", integer("q_num_heads", 2) + integer("kv_num_heads", 1)) +
                node("ReduceMean", {"o"}, "f", integers("axes", {1}) + integer("keepdims", 0)) + kHead;
  parts.constants =
      bytes(5, tensor("qkv.weight", {6, 8})) + bytes(5, tensor("fc.weight", {3, 4})) + bytes(5, tensor("fc.bias", {3}));
  EXPECT_EQ(refused(parts), std::vector<std::string>());
  const std::vector<json> attentions = nodes_of(graph_at(folder_.file("net.json")), "attention");
  ASSERT_EQ(attentions.size(), 1u);
  EXPECT_EQ(attentions[0].at("inputs"), json({"qkv"}));
  EXPECT_EQ(attentions[0].at("heads"), 2);
  EXPECT_EQ(attentions[0].at("kv_heads"), 1);
  EXPECT_EQ(attentions[0].at("causal"), false);
}

// The scores q k^T are inside a chain of nodes, and have another shape than q and k. A Shape node
// must give the shape of the scores.
TEST_F(MadeFile, KnowsTheShapeOfScores) {
  Parts parts;
  parts.nodes = node("Reshape", {"x", "low"}, "l") + node("Transpose", {"l"}, "t", integers("perm", {0, 1, 3, 2})) +
                node("MatMul", {"l", "t"}, "s") + node("Shape", {"s"}, "n") + node("Reshape", {"s", "n"}, "m") +
                node("ReduceMean", {"m"}, "f", integers("axes", {1, 2}) + integer("keepdims", 0)) + kHead;
  parts.constants += bytes(5, number(1, 4) + number(2, 7) + bytes(8, "low") + number(7, 0) + number(7, 1) +
                                  number(7, 4) + number(7, 9));
  EXPECT_EQ(refused(parts), std::vector<std::string>());
  const json product = nodes_of(graph_at(folder_.file("net.json")), "product").at(0);
  EXPECT_EQ(product.at("turned_b"), true);
}

TEST_F(MadeFile, RefusesASignalsWeightForImages) {
  Parts parts;
  parts.constants = bytes(5, tensor("c.weight", {4, 1, 3})) + bytes(5, tensor("fc.weight", {3, 4})) +
                    bytes(5, tensor("fc.bias", {3}));
  expect_refused(parts, {"(Conv): its weight [4,1,3] does not suit"});
}

TEST_F(MadeFile, RefusesWhatIsNoNumber) {
  Parts parts;
  parts.nodes = constant("six", tensor("value", {2}, 6)) + constant("none", tensor("value", {1}, 0)) +
                node("Conv", {"x", "c.weight"}, "a") + node("Clip", {"a", "none", "six"}, "r") + kMean + kHead;
  expect_refused(parts, {"\"r_node\" (Clip): input 2 must be one number, not 2"});
  parts.nodes = node("Conv", {"x", "c.weight"}, "a") +
                node("Gelu", {"a"}, "r", bytes(5, bytes(1, "approximate") + bytes(4, "fast") + number(20, 3))) + kMean +
                kHead;
  expect_refused(parts, {"(Gelu): approximate is \"fast\""});
}

TEST(Shortest, HasTheSameFloat) {
  EXPECT_EQ(shortest(static_cast<double>(0.1f)), 0.1);
  EXPECT_EQ(shortest(static_cast<double>(1e-5f)), 1e-5);
  for (uint32_t bits = 0x3a800000u; bits < 0x42000000u; bits += 99991) {
    const float number = std::bit_cast<float>(bits);
    EXPECT_EQ(static_cast<float>(shortest(static_cast<double>(number))), number);
  }
}

// All problems of a file are reported at once, each with its node, op and attribute.
TEST_F(MadeFile, IsRefusedAsAWhole) {
  Parts parts;
  parts.nodes = node("Conv", {"x", "c.weight"}, "a", integers("kernel_shape", {3, 3}) + integer("group", 3)) +
                node("Celu", {"a"}, "m") + node("Relu", {"m"}, "r", integer("sharp", 1)) +
                node("Relu", {"x"}, "s", integer("sharp", 1)) +
                node("MaxPool", {"s"}, "p", integers("kernel_shape", {2, 3}) + integer("storage_order", 1)) +
                node("Add", {"r", "p"}, "t") + node("GlobalAveragePool", {"t"}, "g") + node("Flatten", {"g"}, "f") +
                node("Gemm", {"f", "fc.weight"}, "y");
  parts.opset = 9;
  expect_refused(parts, {"opset: 9", "\"a_node\" (Conv): kernel_shape is [3,3]", "\"a_node\" (Conv): group is 3",
                         "\"m_node\" (Celu): the op", "\"s_node\" (Relu): attribute \"sharp\"",
                         "\"p_node\" (MaxPool): storage_order is 1"});
  EXPECT_EQ(refused(parts).size(), 6u) << "and nothing that follows from another";
}

TEST_F(MadeFile, IsRefusedByWhatIsWrong) {
  const Parts right;
  const auto with = [&](const auto& change) {
    Parts parts = right;
    change(parts);
    return parts;
  };
  expect_refused(with([](Parts& p) { p.input = value(11, "x", {-1, 1, -1, -1}); }), {"\"x\"", "--input x="});
  expect_refused(with([](Parts& p) { p.input = value(11, "x", {-1, 36}); }), {"\"x\"", "[N,C,H,W]"});
  expect_refused(with([](Parts& p) { p.input += value(11, "z", {-1, 1, 6, 6}); }), {"2 inputs"});
  expect_refused(with([](Parts& p) {
                   p.output += value(12, "r", {-1, 4, 6, 6});
                 }),
                 {"2 outputs, \"y\" [N,3], \"r\" [N,4,6,6]", "--model-output"});
  expect_refused(with([](Parts& p) {
                   p.output = value(12, "r", {-1, 4, 6, 6});
                 }),
                 {"output \"r\": is [N,4,6,6]", "a classifier's logits"});
  expect_refused(with([](Parts& p) { p.output = value(12, "q", {-1}); }), {"output \"q\"", "no node writes it"});
  expect_refused(
      with([](Parts& p) {
        p.nodes = node("Relu", {"b"}, "a") + node("Relu", {"a"}, "b") + node("Gemm", {"b", "fc.weight"}, "y");
      }),
      {"\"a_node\"", "nothing before it writes"});
  expect_refused(with([](Parts& p) {
                   p.nodes = node("Conv", {"x", "w"}, "a") + node("Gemm", {"a", "fc.weight"}, "y");
                 }),
                 {"reads \"w\", which nothing before it writes"});
  expect_refused(with([](Parts& p) {
                   p.nodes = node("Flatten", {"x"}, "f") + node("Gemm", {"f", "fc.weight"}, "y");
                 }),
                 {"[3,4]", "rows of 36"});
  expect_refused(with([](Parts& p) {
                   p.nodes = node("MaxPool", {"x"}, "p", integers("kernel_shape", {3, 3, 3})) +
                             node("Gemm", {"p", "fc.weight"}, "y");
                 }),
                 {"kernel_shape is [3,3,3]"});
  expect_refused(with([](Parts& p) { p.more = bytes(15, ""); }), {"sparse"});
  write_file(folder_.file("net.onnx"), right.file());
  expect_user_error([&] { import_net(order_of(folder_.file("net.onnx"), folder_.file("net.safetensors"))); },
                    {"net.safetensors", ".json"});
}

TEST_F(MadeFile, IsRefusedWhereItLies) {
  const Text file = Parts().file();
  expect_error("", {"net.onnx", "no graph"});
  expect_error(Text(40, '\xff'), {"net.onnx", "byte"});
  for (size_t length = 1; length < file.size(); length += 7) {
    write_file(folder_.file("net.onnx"), file.substr(0, length));
    EXPECT_THROW(import_net(order_of(folder_.file("net.onnx"), folder_.file("net.json"))), UserError) << length;
  }
  Parts parts;
  parts.constants = bytes(5, tensor("c.weight", {4, 1, 1, 1}, std::numeric_limits<float>::quiet_NaN())) +
                    bytes(5, tensor("fc.weight", {3, 4})) + bytes(5, tensor("fc.bias", {3}));
  expect_error(parts.file(), {"net.onnx", "\"c.weight\"", "not finite"});
  parts.constants = bytes(5, number(1, 8) + tensor("c.weight", {4, 1, 1, 1})) + bytes(5, tensor("fc.weight", {3, 4})) +
                    bytes(5, tensor("fc.bias", {3}));
  write_file(folder_.file("net.onnx"), parts.file());
  EXPECT_FALSE(import_net(order_of(folder_.file("net.onnx"), folder_.file("net.json"))).refused.empty())
      << "five dimensions";
  parts.constants = bytes(5, number(1, 4) + number(1, 1) + number(1, 1) + number(1, 1) + number(2, 1) +
                                 bytes(8, "c.weight") + bytes(9, "short")) +
                    bytes(5, tensor("fc.weight", {3, 4})) + bytes(5, tensor("fc.bias", {3}));
  expect_error(parts.file(), {"net.onnx", "\"c.weight\"", "has 5 bytes", "16"});
  parts.constants = bytes(5, tensor("c.weight", {4, 1, 1, 1})) + bytes(5, tensor("fc.weight", {3, 5})) +
                    bytes(5, tensor("fc.bias", {3}));
  expect_refused(parts, {"(Gemm): its weight [3,5] does not suit rows of 4"});
}

// The numbers may be in another file that the model names, but only in the model's folder.
TEST_F(MadeFile, MayHaveItsNumbersBeside) {
  const auto beside = [](const Text& location, const Text& length) {
    const auto entry = [](const Text& key, const Text& text) { return bytes(13, bytes(1, key) + bytes(2, text)); };
    return bytes(5, number(1, 4) + number(1, 1) + number(1, 1) + number(1, 1) + number(2, 1) + bytes(8, "c.weight") +
                        entry("location", location) + entry("offset", "4") + entry("length", length) + number(14, 1));
  };
  Parts parts;
  const Text others = bytes(5, tensor("fc.weight", {3, 4})) + bytes(5, tensor("fc.bias", {3}));
  const float numbers[] = {9, 1, 2, 3, 4};
  write_file(folder_.file("net.data"), Text(reinterpret_cast<const char*>(numbers), sizeof numbers));
  parts.constants = beside("net.data", "16") + others;
  EXPECT_TRUE(refused(parts).empty());
  EXPECT_EQ(numbers_in(*open_weights(folder_.file("net.safetensors")), "c.weight"), (std::vector<float>{1, 2, 3, 4}));
  std::filesystem::remove(folder_.file("net.json"));
  for (const auto& [location, length, words] : {std::tuple("../net.data", "16", "beside"),
                                                {"/etc/passwd", "16", "beside"},
                                                {"net.data", "17", "ends before"},
                                                {"net.data", "x", "length"},
                                                {"none.data", "16", "none.data"},
                                                {"", "16", "beside"}}) {
    parts.constants = beside(location, length) + others;
    expect_error(parts.file(), {words});
  }
}

// ---- an imported net computes the same numbers as the model ----

class CheckedImport : public MadeFile {
 protected:
  // Writes one input and its expected output to `folder`. The net of Parts computes 1.5 from images
  // of ones.
  void write_set(const Text& folder, float input, float output,
                 const std::vector<uint64_t>& images = {2, 1, 6, 6}) const {
    std::filesystem::create_directories(folder);
    write_file(folder + "/input_0.pb", tensor("", images, input));
    write_file(folder + "/output_0.pb", tensor("", {2, 3}, output));
  }
  ProcessResult import_checked(const Text& file, const Text& data, const std::vector<Text>& more = {}) const {
    std::vector<Text> arguments = {"import", file, "-o", folder_.file("net.json"), "--json", "--check", data};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return reprise_command(arguments);
  }
  void expect_refused_check(const Text& file, const Text& data, const std::vector<Text>& words, int status = 1) const {
    const ProcessResult result = import_checked(file, data);
    EXPECT_EQ(result.status, status);
    for (const Text& word : words) EXPECT_NE(result.err.find(word), Text::npos) << word << " is not in " << result.err;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      EXPECT_FALSE(entry.path().filename().string().starts_with("net.json")) << "nothing is written";
    EXPECT_FALSE(std::filesystem::exists(folder_.file("net.safetensors")));
  }
};

TEST_F(CheckedImport, ComputesWhatIsStored) {
  const ProcessResult result = import_checked(kGoldens + "resnet.onnx", kGoldens + "resnet.outputs.safetensors");
  ASSERT_EQ(result.status, 0) << result.err;
  const json check = json::parse(result.out).at("check");
  EXPECT_EQ(check.at("samples"), 3);
  EXPECT_LT(check.at("distance"), 1e-6);
  EXPECT_TRUE(std::filesystem::exists(folder_.file("net.safetensors")));
}

TEST_F(CheckedImport, TakesTestDataOfOnnx) {
  Parts parts;
  write_file(folder_.file("a.onnx"), parts.file());
  write_set(folder_.file("data/test_data_set_0"), 1, 1.5f);
  write_set(folder_.file("data/test_data_set_1"), 3, 3.5f);
  for (const auto& [data, samples] : {std::pair(Text("data"), 4), {"data/test_data_set_1", 2}}) {
    const ProcessResult result = import_checked(folder_.file("a.onnx"), folder_.file(data));
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(json::parse(result.out).at("check").at("samples"), samples);
  }
  // The import must omit the softmax, because the loss contains it.
  parts.nodes += node("Softmax", {"y"}, "z");
  parts.output = value(12, "z", {-1, 3});
  write_file(folder_.file("b.onnx"), parts.file());
  write_set(folder_.file("thirds"), 1, 1.0f / 3);
  EXPECT_EQ(import_checked(folder_.file("b.onnx"), folder_.file("thirds")).status, 0);
}

// The file contains two images. A loss of pairs reads two images for each sample, and a micro-batch
// has two samples, so the file has fewer images than a micro-batch.
TEST_F(CheckedImport, OfPairsComputesEachInput) {
  Parts parts;
  write_file(folder_.file("a.onnx"), parts.file());
  write_set(folder_.file("data"), 1, 1.5f);
  parts.nodes += node("ReduceL2", {"y", "axes"}, "l") + node("Div", {"y", "l"}, "z");
  parts.constants += bytes(5, number(1, 1) + number(2, 7) + bytes(8, "axes") + bytes(9, Text("\1\0\0\0\0\0\0\0", 8)));
  parts.output = value(12, "z", {-1, 3});
  parts.opset = 18;
  write_file(folder_.file("divided.onnx"), parts.file());
  write_set(folder_.file("of_length_1"), 1, std::sqrt(1.0f / 3));
  for (const char* loss : {"infonce", "cosine", "similarity"}) {
    for (const auto& [file, data] : {std::pair("a.onnx", "data"), {"divided.onnx", "of_length_1"}}) {
      const ProcessResult result = import_checked(folder_.file(file), folder_.file(data), {"--loss", loss});
      ASSERT_EQ(result.status, 0) << loss << file << result.err;
      const json check = json::parse(result.out).at("check");
      EXPECT_EQ(check.at("samples"), 2);
      EXPECT_LT(check.at("distance"), 1e-6);
    }
    EXPECT_EQ(import_checked(folder_.file("a.onnx"), folder_.file("of_length_1"), {"--loss", loss}).status, 1);
  }
}

// Nodes that only the other outputs need are omitted.
TEST_F(CheckedImport, ComputesTheOutputThatIsNamed) {
  Parts parts;
  parts.nodes += node("NoSuchOp", {"r"}, "z");
  parts.output = value(12, "z", {-1, 4, 6, 6}) + parts.output;
  write_file(folder_.file("a.onnx"), parts.file());
  write_set(folder_.file("data"), 1, 1.5f);
  std::filesystem::rename(folder_.file("data/output_0.pb"), folder_.file("data/output_1.pb"));
  const ProcessResult result = import_checked(folder_.file("a.onnx"), folder_.file("data"), {"--model-output", "y"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(open_weights(folder_.file("net.safetensors"))->names().size(), 3u);
  export_onnx(open_weights(folder_.file("net.safetensors")), folder_.file("net.safetensors"), folder_.file("out.onnx"));
  Text exported = read_file(folder_.file("out.onnx"));
  const Text mark = bytes(14, bytes(1, "written_by") + bytes(2, "reprise onnx"));
  exported.erase(exported.find(mark), mark.size());
  EXPECT_EQ(exported, read_file(folder_.file("a.onnx")));
  const ProcessResult unknown = import_checked(folder_.file("a.onnx"), folder_.file("data"), {"--model-output", "w"});
  EXPECT_EQ(unknown.status, 1);
  EXPECT_NE(unknown.err.find("\"w\" is no output of the model, which has \"z\" [N,4,6,6], \"y\" [N,3]"), Text::npos)
      << unknown.err;
}

TEST_F(CheckedImport, IsRefusedWhereItComputesSomethingElse) {
  write_file(folder_.file("a.onnx"), Parts().file());
  write_set(folder_.file("other"), 1, 1.49f);
  expect_refused_check(folder_.file("a.onnx"), folder_.file("other"),
                       {"other:", "computes other outputs", "0.006", "at most 0.001"});
  write_set(folder_.file("unknown"), 1, std::numeric_limits<float>::quiet_NaN());
  expect_refused_check(folder_.file("a.onnx"), folder_.file("unknown"), {"computes other outputs"});
  write_set(folder_.file("wide"), 1, 1.5f, {2, 1, 6, 7});
  expect_refused_check(folder_.file("a.onnx"), folder_.file("wide"), {"input_0.pb: is [2,1,6,7]; must be [N,1,6,6]"});
  write_set(folder_.file("many"), 1, 1.5f, {3, 1, 6, 6});
  expect_refused_check(folder_.file("a.onnx"), folder_.file("many"),
                       {"output_0.pb: is [2,3]", "3 numbers of each of 3 samples"});
  std::filesystem::create_directories(folder_.file("empty"));
  expect_refused_check(folder_.file("a.onnx"), folder_.file("empty"),
                       {"neither input_0.pb nor a folder test_data_set_0"});
  expect_refused_check(folder_.file("a.onnx"), kGoldens + "resnet.outputs.safetensors",
                       {"tensor \"x\": is [3,3,16,16]; must be [N,1,6,6]"});
  expect_refused_check(folder_.file("a.onnx"), kGoldens + "resnet.safetensors", {"tensor \"x\": missing"});
  EXPECT_EQ(import_checked(folder_.file("a.onnx"), folder_.file("other"), {"--classes", "5"}).status, 2);
}

}  // namespace
}  // namespace reprise::test
