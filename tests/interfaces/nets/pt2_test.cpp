// Tests the import of files that torch.export.save wrote. The net must equal the net from the ONNX
// exporter for the same module, and refusals must name the entry and the field. The test builds bad
// archives entry by entry.
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <limits>

#include "tests/interfaces/command_line.h"
#include "tests/interfaces/expect_user_error.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/io/output_file.h"
#include "tools/files/weights/weight_source.h"
#include "tools/run/nets/import_net.h"

namespace reprise::test {
namespace {

using nlohmann::json;
using Text = std::string;

const std::string kGoldens = "tests/golden/pt2/";  // made by tests/parity/make_pt2_goldens.py

ImportOrder order_of(const std::string& file, const std::string& recipe) {
  ImportOrder order;
  order.file = file;
  order.recipe = recipe;
  return order;
}

std::vector<float> numbers_in(const WeightSource& source, const std::string& name) {
  uint64_t elements = 1;
  for (const uint64_t dimension : source.find(name)->shape) elements *= dimension;
  std::vector<float> numbers(elements);
  source.read(name, 0, elements, numbers.data());
  return numbers;
}

// Returns the nodes of a net, with each node's index instead of its name, because exporters choose
// the names.
json nodes_by_place(const std::string& file) {
  json nodes = parse_json(read_file(file), file).at("nodes");
  std::map<std::string, size_t> places;
  for (json& node : nodes) {
    for (json& input : node.at("inputs")) {
      if (const auto found = places.find(input); found != places.end()) input = found->second;
    }
    places.emplace(node.at("name"), places.size());
    node.erase("name");
  }
  return nodes;
}

class Pt2Import : public CommandLine {};

// The module is exported in three ways: for evaluation with a variable batch; in training mode, in
// which batch-norm writes its statistics; and with weights in another memory order.
TEST_F(Pt2Import, IsTheNetThatOnnxHas) {
  EXPECT_TRUE(import_net(order_of("tests/golden/onnx/resnet.onnx", folder_.file("onnx.json"))).refused.empty());
  const auto theirs = open_weights("tests/golden/onnx/resnet.safetensors");
  for (const char* name : {"resnet.pt2", "resnet_training.pt2", "resnet_channels_last.pt2"}) {
    const ImportReport report = import_net(order_of(kGoldens + name, folder_.file("net.json")));
    EXPECT_EQ(report.refused, std::vector<std::string>()) << name;
    EXPECT_EQ(nodes_by_place(folder_.file("net.graph.json")), nodes_by_place(folder_.file("onnx.graph.json"))) << name;
    const auto ours = open_weights(folder_.file("net.safetensors"));
    EXPECT_EQ(ours->names(), theirs->names()) << name;
    for (const std::string& tensor : theirs->names())
      EXPECT_EQ(numbers_in(*ours, tensor), numbers_in(*theirs, tensor)) << tensor;
  }
}

// The kind of a file is detected by its content, not by its name.
TEST_F(Pt2Import, AsksForNoName) {
  std::filesystem::copy_file(kGoldens + "resnet.pt2", folder_.file("net.onnx"));
  const json report =
      json_answer({"import", folder_.file("net.onnx"), "-o", folder_.file("net.json"), "--classes", "3", "--json"});
  EXPECT_EQ(report.at("ops").at("conv"), 9);
}

// ---- archives made entry by entry ----

struct Entry {
  Text name, content;
  int method = 0;
};

uint64_t sum_of(const Text& content) {
  return crc32_z(0, reinterpret_cast<const unsigned char*>(content.data()), content.size());
}

// Returns a zip archive: the entries, the directory, and the record with the directory's offset.
Text zip_of(const std::vector<Entry>& entries) {
  Text file, directory;
  const auto put = [](Text& to, uint64_t value, int count) {
    for (int i = 0; i < count; ++i) to += static_cast<char>(i < 8 ? value >> (8 * i) : 0);
  };
  for (const Entry& entry : entries) {
    const uint64_t at = file.size();
    // Writes the fields that an entry's header shares with its record in the directory.
    const auto header = [&](Text& to) {
      put(to, 0, 4), put(to, static_cast<uint64_t>(entry.method), 2), put(to, 0, 4), put(to, sum_of(entry.content), 4),
          put(to, entry.content.size(), 4), put(to, entry.content.size(), 4), put(to, entry.name.size(), 2);
    };
    put(file, 0x04034b50, 4), header(file), put(file, 0, 2);
    file += entry.name + entry.content;
    put(directory, 0x02014b50, 4), put(directory, 0, 2), header(directory), put(directory, 0, 12),
        put(directory, at, 4);
    directory += entry.name;
  }
  const uint64_t at = file.size();
  file += directory;
  put(file, 0x06054b50, 4), put(file, 0, 4), put(file, entries.size(), 2), put(file, entries.size(), 2),
      put(file, directory.size(), 4), put(file, at, 4), put(file, 0, 2);
  return file;
}

json meta(const std::vector<int>& sizes, int type = 7) {
  json list = json::array(), strides = json::array();
  for (size_t d = 0; d < sizes.size(); ++d) {
    int stride = 1;
    for (size_t inner = d + 1; inner < sizes.size(); ++inner) stride *= sizes[inner];
    list.push_back({{"as_int", sizes[d]}});
    strides.push_back({{"as_int", stride}});
  }
  return {{"dtype", type}, {"sizes", list}, {"strides", strides}, {"storage_offset", {{"as_int", 0}}}};
}
json named(const char* kind, const Text& name) { return {{kind, {{"name", name}}}}; }
json call(const Text& target, const std::vector<std::pair<Text, json>>& arguments, const Text& output) {
  json inputs = json::array();
  for (const auto& [name, argument] : arguments) inputs.push_back({{"name", name}, {"arg", argument}});
  return {{"target", "torch.ops.aten." + target},
          {"inputs", inputs},
          {"outputs", json::array({named("as_tensor", output)})},
          {"metadata", {{"nn_module_stack", "L__self__,,Net;L__self__part,part,torch.nn.Part"}}}};
}
json tensor(const Text& name) { return named("as_tensor", name); }

// Returns a program with a convolution, a global pool and a linear layer.
json program_of_net() {
  json program, &graph = program["graph_module"]["graph"], &signature = program["graph_module"]["signature"];
  program["schema_version"] = {{"major", 8}, {"minor", 1}};
  const json ones = {{"as_ints", {1, 1}}}, one = {{"as_int", 1}};
  graph["nodes"] = {call("conv2d.default", {{"input", tensor("x")}, {"weight", tensor("p_conv_weight")}}, "conv2d"),
                    call("relu_.default", {{"self", tensor("conv2d")}}, "relu_"),
                    call("adaptive_avg_pool2d.default", {{"self", tensor("relu_")}, {"output_size", ones}}, "pool"),
                    call("flatten.using_ints", {{"self", tensor("pool")}, {"start_dim", one}}, "flatten"),
                    call("linear.default", {{"input", tensor("flatten")}, {"weight", tensor("p_fc_weight")}},
                         "linear")};
  graph["sym_int_values"] = json::object();
  json& values = graph["tensor_values"];
  values = {{"x", meta({2, 1, 6, 6})},    {"conv2d", meta({2, 4, 6, 6})}, {"relu_", meta({2, 4, 6, 6})},
            {"pool", meta({2, 4, 1, 1})}, {"flatten", meta({2, 4})},      {"linear", meta({2, 3})}};
  values["p_conv_weight"] = meta({4, 1, 1, 1});
  values["p_fc_weight"] = meta({3, 4});
  signature = json::parse(
      R"({"input_specs": [{"parameter": {"arg": {"name": "p_conv_weight"}, "parameter_name": "conv.weight"}},
                                              {"parameter": {"arg": {"name": "p_fc_weight"}, "parameter_name": "fc.weight"}},
                                              {"user_input": {"arg": {"as_tensor": {"name": "x"}}}}],
                              "output_specs": [{"user_output": {"arg": {"as_tensor": {"name": "linear"}}}}]})");
  return program;
}
json payload(const Text& file, const json& of) {
  return {{"path_name", file}, {"use_pickle", false}, {"tensor_meta", of}};
}

struct Archive {
  json weights = {{"conv.weight", payload("weight_0", meta({4, 1, 1, 1}))},
                  {"fc.weight", payload("weight_1", meta({3, 4}))}};
  json program = program_of_net();
  Text order = "little", fc = Text(48, 'b');
  std::vector<Entry> more = {};

  json& node(size_t n) { return program["graph_module"]["graph"]["nodes"][n]; }
  json& values() { return program["graph_module"]["graph"]["tensor_values"]; }
  std::vector<Entry> entries() const {
    std::vector<Entry> all = {{"net/models/model.json", program.dump()},
                              {"net/data/weights/model_weights_config.json", json{{"config", weights}}.dump()},
                              {"net/data/constants/model_constants_config.json", R"({"config": {}})"},
                              {"net/data/weights/weight_0", Text(16, 'a')},
                              {"net/data/weights/weight_1", fc},
                              {"net/byteorder", order}};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

class MadeArchive : public CommandLine {
 protected:
  std::vector<std::string> refused(const Text& file) {
    write_file(folder_.file("net.pt2"), file);
    return import_net(order_of(folder_.file("net.pt2"), folder_.file("net.json"))).refused;
  }
  template <typename Change>
  void expect_error(const Change& change, std::initializer_list<std::string> words) {
    Archive archive;
    change(archive);
    expect_user_error([&] { refused(zip_of(archive.entries())); }, words);
    EXPECT_FALSE(std::filesystem::exists(folder_.file("net.json"))) << "nothing is written";
  }
  template <typename Change>
  // Requires that the changed archive is refused with lines.size() lines, which begin like `lines`.
  void expect_refused(const Change& change, const std::vector<std::string>& lines) {
    Archive archive;
    change(archive);
    const std::vector<std::string> is = refused(zip_of(archive.entries()));
    ASSERT_EQ(is.size(), lines.size()) << json(is).dump();
    for (size_t n = 0; n < lines.size(); ++n) EXPECT_TRUE(is[n].starts_with(lines[n])) << is[n];
  }
  // Imports the archive and returns its net. Expects no refusal.
  json net_of(const Archive& archive) {
    EXPECT_EQ(refused(zip_of(archive.entries())), std::vector<std::string>());
    return parse_json(read_file(folder_.file("net.graph.json")), "net.graph.json");
  }
  static json find_node(const json& net, const Text& op) {
    for (const json& node : net.at("nodes")) {
      if (node.at("op") == op) return node;
    }
    ADD_FAILURE() << "no " << op << " in " << net.dump(1);
    return json::object();
  }
};

TEST_F(MadeArchive, IsRead) {
  EXPECT_EQ(refused(zip_of(Archive().entries())), std::vector<std::string>());
  float of_a = 0;
  std::memcpy(&of_a, "aaaa", 4);
  EXPECT_EQ(numbers_in(*open_weights(folder_.file("net.safetensors")), "conv.weight"), std::vector<float>(4, of_a));
}

TEST_F(MadeArchive, IsRefusedByWhatIsWrong) {
  expect_error([](Archive& a) { a.program["schema_version"]["major"] = 7; },
               {"net.pt2", "schema_version", "must be 8"});
  expect_error([](Archive& a) { a.program.erase("schema_version"); }, {"net.pt2", "schema_version", "not found"});
  expect_error([](Archive& a) { a.weights.erase("fc.weight"); }, {"\"fc.weight\"", "no numbers"});
  expect_error([](Archive& a) { a.weights["fc.weight"]["path_name"] = "weight_7"; },
               {"weights \"fc.weight\"", "\"weight_7\" is not in the archive"});
  expect_error([](Archive& a) { a.weights["fc.weight"]["use_pickle"] = true; }, {"\"fc.weight\"", "is pickled"});
  expect_error(
      [](Archive& a) {
        a.weights["fc.weight"]["tensor_meta"] = meta({3, 5});
      },
      {"weights \"fc.weight\"", "48 bytes"});
  expect_error([](Archive& a) { a.weights["fc.weight"]["tensor_meta"]["strides"][0]["as_int"] = 0; },
               {"weights \"fc.weight\"", "the same place"});
  expect_error([](Archive& a) { a.weights["fc.weight"]["tensor_meta"]["dtype"] = 9; },
               {"tensor \"fc.weight\"", "type 0"});
  expect_error(
      [](Archive& a) {
        a.weights["fc.weight"]["tensor_meta"]["sizes"][0] = {{"as_int", -3}};
      },
      {"weights \"fc.weight\"", "a size must be"});
  expect_error([](Archive& a) { a.order = "big"; }, {"byteorder", "little"});
  expect_error([](Archive& a) { a.more = {{"net/models/other.json", "{}"}}; }, {"models/*.json", "2 of them"});
  expect_error(
      [](Archive& a) {
        a.more = {{"serialized_exported_program.json", "{}"}};
      },
      {"older torch.export", "2.8"});
  expect_error([](Archive& a) { a.more = {{"net/byteorder", "little"}}; }, {"\"net/byteorder\"", "twice"});
  expect_error([](Archive& a) { a.more = {{"net/extra/note", "note", 8}}; }, {"\"net/extra/note\"", "compressed"});
  expect_error([](Archive& a) { a.node(1).erase("inputs"); }, {"graph_module.graph.nodes[1]", "inputs"});
  expect_error(
      [](Archive& a) {
        a.node(2)["inputs"][1]["arg"] = {{"as_ints", {1.5, 1}}};
      },
      {"nodes[2]", "an integer", "1.5"});
  expect_error(
      [](Archive& a) {
        a.node(2)["inputs"][1]["arg"] = {{"as_sym_ints", {{{"as_name", "s1"}}}}};
      },
      {"nodes[2]", "s1", "sym_int_values"});
  expect_error(
      [](Archive& a) {
        a.values()["x"]["sizes"][1] = {{"as_int", int64_t{1} << 40}};
      },
      {"tensor_values.x", "from 0 to 2^31"});
  expect_error([](Archive& a) { a.values().erase("x"); }, {"\"x\"", "no sizes"});
}

// Each refusal must name the module of the node and torch's op.
TEST_F(MadeArchive, IsRefusedAsAWhole) {
  expect_refused(
      [](Archive& a) {
        a.node(1)["target"] = "torch.ops.aten.unheard_of_.default";
        a.node(2)["inputs"].push_back({{"name", "mode"}, {"arg", {{"as_string", "odd"}}}});
      },
      {"node \"part/relu_\" (torch.aten.unheard_of_.default)",
       "node \"part/pool\" (torch.aten.adaptive_avg_pool2d.default with mode)"});
  expect_refused(
      [](Archive& a) {
        a.node(2)["inputs"][1]["arg"] = {{"as_ints", {0, 4}}};
      },
      {"node \"part/pool\" (torch.aten.adaptive_avg_pool2d.default whose output_size is none of 1 to 1000)"});
}

// A pool whose windows have equal sizes and distances becomes one pool. Other pools become parts
// that are concatenated, first along the last axis.
TEST_F(MadeArchive, HasPoolsOfSeveralSizes) {
  const auto pools_of = [&](int height, int width) {
    Archive archive;
    archive.node(2)["inputs"][1]["arg"] = {{"as_ints", {height, width}}};
    archive.values()["pool"] = meta({2, 4, height, width});
    archive.values()["flatten"] = meta({2, 4 * height * width});
    archive.values()["p_fc_weight"] = meta({3, 4 * height * width});
    archive.weights["fc.weight"] = payload("weight_1", meta({3, 4 * height * width}));
    archive.fc = Text(static_cast<size_t>(48 * height * width), 'b');
    EXPECT_EQ(refused(zip_of(archive.entries())), std::vector<std::string>());
    json pools = json::array();
    const json graph = parse_json(read_file(folder_.file("net.graph.json")), "net.graph.json");
    for (const json& node : graph.at("nodes")) {
      if (node.at("op") == "avg_pool" || node.at("op") == "slice" || node.at("op") == "concat") pools.push_back(node);
    }
    return pools;
  };
  const json one = pools_of(5, 2);  // 6 rows: windows of 2 rows, 1 row apart; 6 columns: two halves
  ASSERT_EQ(one.size(), 1u) << one.dump(1);
  EXPECT_EQ(one[0].at("kernel"), (json{2, 3}));
  EXPECT_EQ(one[0].at("stride"), (json{1, 3}));
  const json several = pools_of(3, 4);  // windows of the 6 columns: 0 to 2, 1 to 3, 3 to 5, 4 to 6
  std::vector<std::string> ops;
  for (const json& node : several) ops.push_back(node.at("op"));
  EXPECT_EQ(ops, (std::vector<std::string>{"slice", "avg_pool", "slice", "avg_pool", "concat", "avg_pool"}));
  EXPECT_EQ(several[1].at("kernel"), (json{1, 2}));
  EXPECT_EQ(several[5].at("kernel"), (json{2, 1}));
}

// A norm must not get a parameter that its module does not have.
TEST_F(MadeArchive, InventsNoParameter) {
  Archive archive;
  archive.node(1) = call("group_norm.default", {{"input", tensor("conv2d")}, {"num_groups", {{"as_int", 2}}}}, "relu_");
  const json net = net_of(archive);
  EXPECT_EQ(find_node(net, "group_norm").at("weight"), false);
  EXPECT_EQ(find_node(net, "group_norm").at("bias"), false);
  EXPECT_EQ(read_recipe(folder_.file("net.json")).freeze, std::vector<std::string>());
  EXPECT_EQ(open_weights(folder_.file("net.safetensors"))->names(),
            (std::vector<std::string>{"conv.weight", "fc.weight"}));
}

// ---- gradients ----

TEST_F(MadeArchive, LeavesFrozenWhatIsFrozen) {
  Archive archive;
  archive.weights["conv.weight"]["tensor_meta"]["requires_grad"] = false;
  net_of(archive);
  EXPECT_EQ(read_recipe(folder_.file("net.json")).freeze, std::vector<std::string>{"conv.weight"});
  const json listed = json_answer({"parameters", folder_.file("net.json"), "--json"});
  EXPECT_EQ(listed.at("parameters")[0].at("trains"), false);
  EXPECT_EQ(listed.at("parameters")[1].at("trains"), true);
}

// A buffer that is used as a weight must not be trained.
TEST_F(MadeArchive, TrainsNoBuffer) {
  Archive archive;
  archive.program["graph_module"]["signature"]["input_specs"][0] = {
      {"buffer", {{"arg", {{"name", "p_conv_weight"}}}, {"buffer_name", "conv.weight"}, {"persistent", true}}}};
  net_of(archive);
  EXPECT_EQ(read_recipe(folder_.file("net.json")).freeze, std::vector<std::string>{"conv.weight"});
}

// A detach stops the gradient, and so does a region that is computed without gradients. A weight
// that no gradient reaches is not trained.
TEST_F(MadeArchive, LetsNoGradientThrough) {
  Archive detached;
  detached.node(1) = call("detach.default", {{"self", tensor("conv2d")}}, "relu_");
  EXPECT_EQ(find_node(net_of(detached), "detach").at("inputs"), json{"conv"});
  Archive within;
  json region = {{"inputs", {tensor("relu_"), tensor("p_conv_weight")}}, {"outputs", {tensor("conv2d")}}};
  region["nodes"] = {
      call("conv2d.default", {{"input", tensor("relu_")}, {"weight", tensor("p_conv_weight")}}, "conv2d")};
  region["tensor_values"] = {{"relu_", meta({2, 1, 6, 6})},
                             {"p_conv_weight", meta({4, 1, 1, 1})},
                             {"conv2d", meta({2, 4, 6, 6})}};
  region["sym_int_values"] = json::object();
  json calls = call("",
                    {{"", {{"as_bool", false}}},
                     {"", {{"as_graph", {{"name", "submod_1"}, {"graph", region}}}}},
                     {"", tensor("x")},
                     {"", tensor("p_conv_weight")}},
                    "conv2d");
  calls["target"] = "torch.ops.higher_order.wrap_with_set_grad_enabled";
  calls["name"] = "wrap";
  within.node(0) = calls;
  const json net = net_of(within);
  EXPECT_EQ(find_node(net, "detach").at("inputs"), json{"conv"});
  EXPECT_EQ(find_node(net, "relu").at("inputs"), json{find_node(net, "detach").at("name")});
  const json listed = json_answer({"parameters", folder_.file("net.json"), "--json"});
  EXPECT_EQ(listed.at("parameters")[0].at("trains"), false) << "conv.weight";
}

// Returns the archive with a batch-norm after the convolution. The arguments set its training flag,
// its momentum, whether its weight is frozen, and whether a dropout follows.
Archive with_batch_norm(bool in_training, double momentum, bool is_frozen, bool has_dropout) {
  Archive archive;
  json arguments = {{{"name", "input"}, {"arg", tensor("conv2d")}}};
  for (const char* part : {"weight", "bias", "running_mean", "running_var"}) {
    arguments.push_back({{"name", part}, {"arg", tensor(Text("p_bn_") + part)}});
    archive.values()[Text("p_bn_") + part] = meta({4});
    const bool is_buffer = Text(part).starts_with("running");
    archive.weights[Text("bn.") + part] = payload("weight_0", meta({4}));
    archive.weights[Text("bn.") + part]["tensor_meta"]["requires_grad"] = !is_frozen && !is_buffer;
    const Text kind = is_buffer ? "buffer" : "parameter";
    archive.program["graph_module"]["signature"]["input_specs"].push_back(
        {{kind, {{"arg", {{"name", Text("p_bn_") + part}}}, {kind + "_name", Text("bn.") + part}}}});
  }
  archive.node(1) = call("batch_norm.default", {}, "relu_");
  arguments.push_back({{"name", "training"}, {"arg", {{"as_bool", in_training}}}});
  arguments.push_back({{"name", "momentum"}, {"arg", {{"as_float", momentum}}}});
  archive.node(1)["inputs"] = arguments;
  if (has_dropout) {
    archive.node(2)["inputs"][0]["arg"] = tensor("dropped");
    archive.values()["dropped"] = meta({2, 4, 6, 6});
    json& nodes = archive.program["graph_module"]["graph"]["nodes"];
    nodes.insert(nodes.begin() + 2,
                 call("dropout.default",
                      {{"input", tensor("relu_")}, {"p", {{"as_float", 0.5}}}, {"train", {{"as_bool", true}}}},
                      "dropped"));
  }
  return archive;
}

TEST_F(MadeArchive, KeepsABatchNormInItsMode) {
  EXPECT_FALSE(find_node(net_of(with_batch_norm(true, 0.1, false, false)), "batch_norm").contains("running"));
  EXPECT_FALSE(find_node(net_of(with_batch_norm(false, 0.1, false, false)), "batch_norm").contains("running"))
      << "an evaluation's";
  EXPECT_EQ(find_node(net_of(with_batch_norm(false, 0.1, false, true)), "batch_norm").at("running"), true);
  EXPECT_EQ(find_node(net_of(with_batch_norm(false, 0, false, true)), "batch_norm").at("running"), true)
      << "its momentum is not read";
  EXPECT_EQ(find_node(net_of(with_batch_norm(true, 0.1, true, false)), "batch_norm").at("running"), false);
  expect_refused([](Archive& a) { a = with_batch_norm(false, 0, false, false); },
                 {"node \"part/relu_\" (BatchNormalization): its momentum is 0"});
}

// A tensor of a module may have the name of a value that an op writes.
TEST_F(MadeArchive, TellsTensorsFromValues) {
  Archive archive;
  archive.weights["pool"] = archive.weights["conv.weight"];
  archive.program["graph_module"]["signature"]["input_specs"][0]["parameter"]["parameter_name"] = "pool";
  EXPECT_EQ(find_node(net_of(archive), "conv").at("channels"), 4);
}

TEST_F(MadeArchive, RefusesWhatChangesABuffer) {
  expect_refused(
      [](Archive& a) {
        a.node(1) = call("mul_.Tensor", {{"self", tensor("p_conv_weight")}, {"other", {{"as_float", 0.5}}}}, "relu_");
        a.node(2)["inputs"][0]["arg"] = tensor("conv2d");
      },
      {"tensor \"conv.weight\": the forward changes it (aten.mul_.Tensor)"});
  expect_refused(
      [](Archive& a) {
        json spec;
        spec["buffer_mutation"] = {{"arg", {{"name", "conv2d"}}}, {"buffer_name", "conv.weight"}};
        a.program["graph_module"]["signature"]["output_specs"].push_back(spec);
      },
      {"tensor \"conv.weight\": the forward changes it (aten.conv2d.default)"});
}

TEST_F(MadeArchive, IsRefusedWhereItEnds) {
  const Text file = zip_of(Archive().entries());
  for (size_t length = 4; length < file.size(); length += 61)
    EXPECT_THROW(refused(file.substr(0, length)), UserError) << length;
  expect_user_error([&] { refused(file.substr(0, file.size() / 2)); }, {"net.pt2", "directory", "cut off"});
  Text moved = file;
  moved[file.size() - 3] = '\x7f';  // changes the offset of the directory
  expect_user_error([&] { refused(moved); }, {"net.pt2", "directory", "zip"});
}

// ---- the ONNX nodes of aten's ops ----

std::string shown(const OnnxAttribute& attribute) {
  if (attribute.type == 1) return json(attribute.number).dump();
  if (attribute.type == 2) return json(attribute.integer).dump();
  if (attribute.type == 3) return attribute.text;
  return json(attribute.integers).dump();
}

// Returns one line for each node. The value of a Constant is shown where a node reads it.
std::string listing(const OnnxFile& file) {
  std::map<std::string, std::string> constants;
  std::string text;
  for (const OnnxNode& node : file.model().nodes) {
    if (node.op == "Constant") {
      const OnnxTensor& tensor = *node.attributes.at(0).tensor;
      constants[node.outputs.at(0)] =
          tensor.numbers.empty() ? json(file.integers(tensor)).dump() : json(file.floats(tensor)).dump();
      continue;
    }
    for (const std::string& output : node.outputs) text += (&output == &node.outputs[0] ? "" : ", ") + output;
    text += " = " + (node.domain.empty() ? "" : node.domain + ".") + node.op + "(";
    for (size_t n = 0; n < node.inputs.size(); ++n) {
      const auto constant = constants.find(node.inputs[n]);
      text += (n == 0 ? "" : ", ") + (constant == constants.end() ? node.inputs[n] : constant->second);
    }
    text += ")";
    for (const OnnxAttribute& attribute : node.attributes) text += " " + attribute.name + "=" + shown(attribute);
    text += "\n";
  }
  return text;
}

// The file has the nodes of nearly all ops that are translated. onnxruntime, run separately, gave
// torch's results up to the last digits of f32.
TEST(AtenGraph, IsWrittenInOnnx) {
  const std::string file = kGoldens + "many.pt2", is = listing(OnnxFile(file));
  EXPECT_EQ(is, read_file(kGoldens + "many.txt")) << "all of it:\n" << is;
}

// After an op has changed a value in place, the value itself may be read. Reading another view of
// the value must be refused.
TEST(AtenGraph, RefusesToReadWhatAViewHasChanged) {
  const OnnxFile file(kGoldens + "writes_through_view.pt2");
  const auto refused = std::find_if(file.model().nodes.begin(), file.model().nodes.end(),
                                    [](const OnnxNode& node) { return node.domain == "torch"; });
  ASSERT_NE(refused, file.model().nodes.end());
  EXPECT_EQ(refused->op, "aten.sum.default reads \"relu\", of which another view was changed in place");
}

}  // namespace
}  // namespace reprise::test
