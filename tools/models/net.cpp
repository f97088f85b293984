// The table of a net's ops: their words, their keys, and what each appends to a graph. Shapes are judged by Graph, which names the node.
#include "tools/models/net.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "tools/formats/error.h"
#include "tools/formats/json_text.h"
#include "tools/graph/graph.h"

namespace reprise {
namespace {

using nlohmann::json;
using Inputs = std::vector<ValueId>;

constexpr int kMostNodes = 100000;
constexpr double kMostSide = 65535;

struct NumberKey {
  enum class Form { kInteger, kNumber, kFlag };
  const char* key;
  Form form;
  double low, high;
  std::optional<double> absent;  // none: the key must be given
};
constexpr NumberKey count_key(const char* key, double low, double high, std::optional<double> absent = std::nullopt) {
  return {key, NumberKey::Form::kInteger, low, high, absent};
}
constexpr NumberKey number_key(const char* key, double low, double high, std::optional<double> absent = std::nullopt) {
  return {key, NumberKey::Form::kNumber, low, high, absent};
}
constexpr NumberKey flag_key(const char* key, bool absent) { return {key, NumberKey::Form::kFlag, 0, 1, absent ? 1 : 0}; }

struct NetOp {
  const char* word;
  size_t inputs;
  std::vector<NumberKey> keys;
  ValueId (*append)(Graph& graph, const NetNode& node, const Inputs& inputs);
};

uint32_t count_of(const NetNode& node, const char* key) { return static_cast<uint32_t>(node.numbers.at(key)); }
float number_of(const NetNode& node, const char* key) { return static_cast<float>(node.numbers.at(key)); }

WindowAttribute window_of(const NetNode& node) {
  const auto side = [&](const char* key) { return static_cast<uint16_t>(node.numbers.at(key)); };
  return {side("kernel"), side("kernel"), side("stride"), side("pad")};
}

float reach_of(const Graph& graph, ValueId x) {
  const Tensor& tensor = graph.tensor(x);
  return 1.0f / std::sqrt(static_cast<float>(std::max<uint64_t>(1, tensor.last_dimension())));
}

// torch.nn.Linear draws weights from U(-r, r), r = 1/sqrt(fan_in): a normal distribution of the same variance stands for it.
ValueId append_linear(Graph& graph, const NetNode& node, const Inputs& in) {
  return graph.linear(in[0], node.name, count_of(node, "features"), false, node.numbers.at("bias") != 0, reach_of(graph, in[0]) / std::sqrt(3.0f));
}

ValueId append_loss_head(Graph& graph, const NetNode& node, const Inputs& in) {
  const uint32_t classes = count_of(node, "classes"), features = static_cast<uint32_t>(graph.tensor(in[0]).last_dimension());
  const float reach = reach_of(graph, in[0]);
  const ValueId weight = graph.parameter(node.name + ".weight", {classes, features}, InitKind::kUniform, reach);
  const ValueId bias = node.numbers.at("bias") != 0 ? graph.parameter(node.name + ".bias", {classes}, InitKind::kUniform, reach) : kNoValue;
  graph.loss_head(in[0], node.name, weight, bias);
  return kNoValue;
}

constexpr const char* kHead = "loss_head";

const std::vector<NetOp>& net_ops() {
  static const NumberKey kKernel = count_key("kernel", 1, kMostSide), kStride = count_key("stride", 1, kMostSide, 1), kPad = count_key("pad", 0, kMostSide, 0);
  static const NumberKey kEpsilonKey = number_key("epsilon", kEpsilon.low, kEpsilon.high, 1e-5);
  static const std::vector<NetOp> ops = {
      {"conv", 1, {count_key("channels", 1, kMostCount), kKernel, kStride, kPad},
       [](Graph& g, const NetNode& n, const Inputs& in) { return g.conv(in[0], n.name, count_of(n, "channels"), window_of(n)); }},
      {"batch_norm", 1, {kEpsilonKey, number_key("momentum", 0, 1, 0.1)},
       [](Graph& g, const NetNode& n, const Inputs& in) { return g.batch_norm(in[0], n.name, number_of(n, "epsilon"), number_of(n, "momentum")); }},
      {"group_norm", 1, {count_key("groups", 1, kMostCount), kEpsilonKey},
       [](Graph& g, const NetNode& n, const Inputs& in) { return g.group_norm(in[0], n.name, count_of(n, "groups"), number_of(n, "epsilon")); }},
      {"layer_norm", 1, {kEpsilonKey},
       [](Graph& g, const NetNode& n, const Inputs& in) { return g.layer_norm(in[0], n.name, number_of(n, "epsilon")); }},
      {"relu", 1, {}, [](Graph& g, const NetNode& n, const Inputs& in) { return g.relu(in[0], n.name); }},
      {"gelu", 1, {flag_key("tanh", false)},
       [](Graph& g, const NetNode& n, const Inputs& in) { return g.gelu(in[0], n.name, n.numbers.at("tanh") != 0); }},
      {"add", 2, {}, [](Graph& g, const NetNode& n, const Inputs& in) { return g.add(in[0], in[1], n.name); }},
      {"max_pool", 1, {kKernel, kStride, kPad}, [](Graph& g, const NetNode& n, const Inputs& in) { return g.max_pool(in[0], n.name, window_of(n)); }},
      {"global_pool", 1, {}, [](Graph& g, const NetNode& n, const Inputs& in) { return g.global_pool(in[0], n.name); }},
      {"dropout", 1, {number_key("p", 0, 0.999)}, [](Graph& g, const NetNode& n, const Inputs& in) { return g.dropout(in[0], n.name, number_of(n, "p")); }},
      {"linear", 1, {count_key("features", 1, kMostCount), flag_key("bias", true)}, append_linear},
      {kHead, 1, {count_key("classes", 2, kMostCount), flag_key("bias", true)}, append_loss_head},
  };
  return ops;
}

std::vector<std::string> op_words() {
  std::vector<std::string> words;
  for (const NetOp& op : net_ops()) words.emplace_back(op.word);
  return words;
}

const NetOp* find_op(const std::string& word) {
  const auto op = std::find_if(net_ops().begin(), net_ops().end(), [&](const NetOp& each) { return word == each.word; });
  return op == net_ops().end() ? nullptr : &*op;
}

double read_number(const JsonFields& fields, const NumberKey& key) {
  if (!fields.has(key.key) && key.absent) return *key.absent;
  const json& value = fields.at(key.key);
  switch (key.form) {
    case NumberKey::Form::kInteger: return static_cast<double>(fields.integer_in(key.key, value, static_cast<uint64_t>(key.low), static_cast<uint64_t>(key.high)));
    case NumberKey::Form::kNumber: return fields.number_in(key.key, value, {key.low, key.high});
    case NumberKey::Form::kFlag: break;
  }
  if (!value.is_boolean()) fields.refuse(key.key, "must be true or false, not " + json_shown(value));
  return value.get<bool>() ? 1 : 0;
}

// What stands before a node, by name.
struct Before {
  std::set<std::string> names = {kNetImages};
  std::string last = kNetImages;
};

std::vector<std::string> read_inputs(const JsonFields& fields, const NetOp& op, const Before& before) {
  std::vector<std::string> inputs;
  if (!fields.has("inputs") && op.inputs == 1) inputs = {before.last};
  fields.read("inputs", inputs);
  if (inputs.size() != op.inputs) {
    fields.refuse("inputs", "must be " + std::to_string(op.inputs) + " of a node of op \"" + op.word + "\", not " + std::to_string(inputs.size()));
  }
  for (const std::string& input : inputs) {
    if (before.names.count(input) == 0) fields.refuse("inputs", json_shown(input) + " is neither \"" + kNetImages + "\" nor a node before this one");
  }
  return inputs;
}

NetNode read_node(const JsonFields& fields, const Before& before) {
  NetNode node;
  fields.require("op", "give " + either_of(op_words()));
  fields.read("op", node.op);
  const NetOp* op = find_op(node.op);
  if (op == nullptr) fields.refuse("op", json_shown(node.op) + " is not available (yet); available are " + quoted_list(op_words()));
  std::vector<std::string> keys = {"op", "name", "inputs"};
  for (const NumberKey& key : op->keys) keys.emplace_back(key.key);
  fields.allow_only(keys);
  fields.require("name", "give the layer's name, under which its parameters lie in files of weights");
  fields.read("name", node.name);
  if (node.name.empty()) fields.refuse("name", "must not be empty");
  if (before.names.count(node.name) > 0) fields.refuse("name", json_shown(node.name) + " stands there before; each node must have a name of its own");
  node.inputs = read_inputs(fields, *op, before);
  for (const NumberKey& key : op->keys) node.numbers[key.key] = read_number(fields, key);
  return node;
}

// The head is the last node, and what the others write is read.
void check_use(const JsonFields& fields, const NetModel& model) {
  if (model.nodes.empty() || model.nodes.back().op != kHead) fields.refuse("nodes", std::string("must end with a node of op \"") + kHead + "\"");
  std::set<std::string> read;
  for (const NetNode& node : model.nodes) read.insert(node.inputs.begin(), node.inputs.end());
  for (size_t n = 0; n + 1 < model.nodes.size(); ++n) {
    const NetNode& node = model.nodes[n];
    if (node.op == kHead) fields.refuse("nodes", "node " + json_shown(node.name) + ": a \"" + kHead + "\" must be the last node");
    if (read.count(node.name) == 0) fields.refuse("nodes", "node " + json_shown(node.name) + ": nothing reads what it writes; leave it out");
  }
}

}  // namespace

NetModel NetModel::read(const JsonFields& fields) {
  fields.allow_only({"family", "image", "nodes"});
  NetModel model;
  const auto [height, width, channels] = read_image_size(fields);
  model.image_height = height;
  model.image_width = width;
  model.image_channels = channels;
  fields.require("nodes", "give the list of the net's nodes, in the order of the forward");
  fields.note("nodes", [] { return list_form(object_form()); }, [] { return json(); },
              {"The nodes in the order of the forward, the loss head last: {\"op\", \"name\", \"inputs\", and the op's own keys}; FORMATS 10.1 has the ops"});
  const json& nodes = fields.list_at("nodes");
  if (nodes.size() > kMostNodes) fields.refuse("nodes", "must be at most " + std::to_string(kMostNodes) + ", not " + std::to_string(nodes.size()));
  Before before;
  for (size_t n = 0; n < nodes.size(); ++n) {
    model.nodes.push_back(read_node(fields.element("nodes", n), before));
    before.last = model.nodes.back().name;
    before.names.insert(before.last);
  }
  check_use(fields, model);
  return model;
}

NetModel read_net(const json& value, const JsonOrigin& origin) { return NetModel::read(JsonFields(value, origin, "")); }

json NetModel::example() {
  return {{"image", {28, 28, 1}},
          {"nodes",
           {{{"op", "conv"}, {"name", "conv1"}, {"channels", 8}, {"kernel", 3}, {"pad", 1}},
            {{"op", "batch_norm"}, {"name", "bn1"}},
            {{"op", "relu"}, {"name", "relu1"}},
            {{"op", "max_pool"}, {"name", "pool1"}, {"kernel", 2}, {"stride", 2}},
            {{"op", "global_pool"}, {"name", "avgpool"}},
            {{"op", "loss_head"}, {"name", "fc"}, {"classes", 10}}}}};
}

json NetModel::write() const {
  json list = json::array();
  for (const NetNode& node : nodes) {
    json value = {{"op", node.op}, {"name", node.name}, {"inputs", node.inputs}};
    for (const NumberKey& key : find_op(node.op)->keys) {
      const double number = node.numbers.at(key.key);
      switch (key.form) {
        case NumberKey::Form::kInteger: value[key.key] = static_cast<uint64_t>(number); break;
        case NumberKey::Form::kNumber: value[key.key] = number; break;
        case NumberKey::Form::kFlag: value[key.key] = number != 0; break;
      }
    }
    list.push_back(std::move(value));
  }
  return {{"image", {image_height, image_width, image_channels}}, {"nodes", list}};
}

ModelDescription NetModel::describe() const {
  return {.input = ModelDescription::Input::kImages, .image_height = image_height, .image_width = image_width, .image_channels = image_channels,
          .classes = static_cast<int>(nodes.back().numbers.at("classes"))};
}

void NetModel::check(const RecipeRules& rules, MicroBatch batch) const {
  Graph graph;
  std::string problem;
  try {
    build(graph, batch);
  } catch (const UserError& error) {
    problem = error.what();
  }
  rules.require(problem.empty(), "model.nodes", problem);
}

void NetModel::build(Graph& graph, MicroBatch batch) const {
  const auto size = [](int n) { return static_cast<uint32_t>(n); };
  graph.input = graph.add_value(kNetImages, ValueKind::kInput, {size(batch.samples), size(image_height), size(image_width), size(image_channels)});
  graph.labels = graph.add_value("labels", ValueKind::kLabels, {size(batch.samples)}, DType::kI32);
  std::map<std::string, ValueId> written = {{kNetImages, graph.input}};
  for (const NetNode& node : nodes) {
    Inputs inputs;
    for (const std::string& input : node.inputs) inputs.push_back(written.at(input));
    written[node.name] = find_op(node.op)->append(graph, node, inputs);
  }
}

}  // namespace reprise
