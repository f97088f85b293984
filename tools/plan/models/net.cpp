// The table of a net's ops: their words, their keys, and what each appends to a graph. Graph checks
// the shapes, and its errors name the node.
#include "tools/plan/models/net.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "tools/files/io/output_file.h"
#include "tools/files/io/error.h"
#include "tools/files/formats/json_text.h"
#include "tools/plan/graph/graph.h"
#include "tools/plan/graph/rules.h"

namespace reprise {
namespace {

using nlohmann::json;
using Inputs = std::vector<ValueId>;

constexpr int kMaxNodes = 100000;
constexpr double kMaxSide = 65535;

struct NumberKey {
  enum class Form { kInteger, kNumber, kFlag };
  const char* key;
  Form form;
  double low, high;
  std::optional<double> absent;      // value if the key is left out; unset: the key must be given
  // The numbers of values that the key may have; {}: any number. One value is written as a number,
  // several as a list. The key may be left out if `counts` is {} or begins with 0.
  std::vector<size_t> counts = {1};
};
NumberKey count_key(const char* key, double low, double high, std::optional<double> absent = std::nullopt,
                    std::vector<size_t> counts = {1}) {
  return {key, NumberKey::Form::kInteger, low, high, absent, std::move(counts)};
}
NumberKey number_key(const char* key, double low, double high, std::optional<double> absent = std::nullopt) {
  return {key, NumberKey::Form::kNumber, low, high, absent};
}
NumberKey list_key(const char* key, double low, double high) {
  return {key, NumberKey::Form::kNumber, low, high, std::nullopt, {}};
}
NumberKey flag_key(const char* key, bool absent) { return {key, NumberKey::Form::kFlag, 0, 1, absent ? 1 : 0}; }
// Returns the key of a flag that may be left out and then has no value.
NumberKey open_flag_key(const char* key) { return {key, NumberKey::Form::kFlag, 0, 1, std::nullopt, {0, 1}}; }

struct InputCount {
  size_t minimum, maximum;
};
constexpr InputCount kNone = {0, 0}, kOne = {1, 1}, kTwo = {2, 2};

struct NetOp {
  const char* word;
  InputCount inputs;
  std::vector<NumberKey> keys;
  ValueId (*append)(Graph& graph, const NetNode& node, const Inputs& inputs);
};

uint32_t count_of(const NetNode& node, const char* key) { return static_cast<uint32_t>(node.numbers.at(key).at(0)); }
float number_of(const NetNode& node, const char* key) { return static_cast<float>(node.numbers.at(key).at(0)); }
bool flag_of(const NetNode& node, const char* key) { return node.numbers.at(key).at(0) != 0; }

std::vector<uint32_t> counts_of(const NetNode& node, const char* key) {
  const std::vector<double>& numbers = node.numbers.at(key);
  return {numbers.begin(), numbers.end()};
}

// Returns `count` numbers for the sides of a window. If fewer numbers are given, they repeat: one
// number is for all sides. Of two numbers, the first is for the height and the second for the
// width.
std::vector<uint16_t> sides_of(const NetNode& node, const char* key, size_t count) {
  std::vector<uint16_t> sides;
  const std::vector<uint32_t> given = counts_of(node, key);
  for (size_t n = 0; n < count; ++n) sides.push_back(static_cast<uint16_t>(given[n % given.size()]));
  return sides;
}

WindowAttribute window_of(const NetNode& node) {
  const auto kernel = sides_of(node, "kernel", 2), stride = sides_of(node, "stride", 2),
             dilation = sides_of(node, "dilation", 2), pad = sides_of(node, "pad", 4);
  return {.kernel_h = kernel[0],
          .kernel_w = kernel[1],
          .stride_h = stride[0],
          .pad_top = pad[0],
          .stride_w = stride[1],
          .pad_left = pad[1],
          .pad_bottom = pad[2],
          .pad_right = pad[3],
          .dilation_h = dilation[0],
          .dilation_w = dilation[1]};
}

float reach_of(const Graph& graph, ValueId x) {
  const Tensor& tensor = graph.tensor(x);
  return 1.0f / std::sqrt(static_cast<float>(std::max<uint64_t>(1, tensor.last_dimension())));
}

// Appends a linear layer. torch.nn.Linear draws weights from U(-r, r), r = 1/sqrt(fan_in); here a
// normal distribution of the same variance is used.
ValueId append_linear(Graph& graph, const NetNode& node, const Inputs& in) {
  return graph.linear(in[0], node.name, count_of(node, "features"), flag_of(node, "input_major"), flag_of(node, "bias"),
                      reach_of(graph, in[0]) / std::sqrt(3.0f));
}

ValueId append_loss_head(Graph& graph, const NetNode& node, const Inputs& in) {
  const uint32_t classes = count_of(node, "classes"),
                 features = static_cast<uint32_t>(graph.tensor(in[0]).last_dimension());
  const float reach = reach_of(graph, in[0]);
  const ValueId weight = graph.parameter(node.name + ".weight", {classes, features}, InitKind::kUniform, reach);
  const ValueId bias =
      flag_of(node, "bias") ? graph.parameter(node.name + ".bias", {classes}, InitKind::kUniform, reach) : kNoValue;
  graph.loss_head(in[0], node.name, weight, bias);
  return kNoValue;
}

// ---- losses of a node's output ----

// Adds the labels that the loss needs. The graph must have no labels yet.
void add_labels(Graph& graph, Shape shape, DType stored) {
  graph.labels = graph.add_value("labels", ValueKind::kLabels, shape, stored);
}

ValueId table_of(Graph& graph, const NetNode& node, const char* key) {
  const std::vector<double>& numbers = node.numbers.at(key);
  return numbers.empty() ? kNoValue : graph.table(node.name + "." + key, {numbers.begin(), numbers.end()});
}

template <TargetLossKind kKind>
ValueId append_target_loss(Graph& graph, const NetNode& node, const Inputs& in) {
  add_labels(graph, shape_of(graph.tensor(in[0])), DType::kF32);
  const float delta = kKind == TargetLossKind::kHuber ? number_of(node, "delta") : 0.0f;
  const ValueId weights = kKind == TargetLossKind::kBinary ? table_of(graph, node, "positive_weights") : kNoValue;
  graph.target_loss(in[0], node.name, {static_cast<uint32_t>(kKind), delta}, weights);
  return kNoValue;
}

// Appends a class_loss. If a sample has one label, labels are i32, as those of a loss_head. If each
// position of a map or sequence has a label, labels are bytes, because there are many.
ValueId append_class_loss(Graph& graph, const NetNode& node, const Inputs& in) {
  Shape places = shape_of(graph.tensor(in[0]));
  const uint32_t classes = places.back();
  places.pop_back();
  const bool is_map = places.size() > 1;
  if (places.empty() || classes < 2)
    throw UserError(node.name + " (class_loss): reads " + std::to_string(classes) +
                    " channels; must have one for each class, at least 2");
  if (is_map && classes > kIgnoredByte)
    throw UserError(node.name + " (class_loss): reads " + std::to_string(classes) +
                    " channels; of maps there must be at most 255 classes");
  add_labels(graph, places, is_map ? DType::kU8 : DType::kI32);
  graph.class_loss(in[0], node.name, {number_of(node, "label_smoothing"), number_of(node, "dice")},
                   table_of(graph, node, "weights"));
  return kNoValue;
}

// Appends a loss with one label for each pair, whose two inputs are neighbouring rows.
ValueId append_pair_loss(Graph& graph, const NetNode& node, const Inputs& in, const PairLossAttribute& loss) {
  add_labels(graph, {std::max(1u, graph.tensor(in[0]).shape[0] / 2)}, DType::kF32);
  graph.pair_loss(in[0], node.name, loss);
  return kNoValue;
}

NormParts parts_of(const NetNode& node) { return {flag_of(node, "weight"), flag_of(node, "bias")}; }

ValueId append_batch_norm(Graph& graph, const NetNode& node, const Inputs& in) {
  const std::vector<double>& running = node.numbers.at("running");
  const NormStatistics statistics = running.empty()    ? NormStatistics::kByWeight
                                    : running[0] != 0 ? NormStatistics::kRunning
                                                      : NormStatistics::kOfBatch;
  return graph.batch_norm(in[0], node.name, number_of(node, "epsilon"), number_of(node, "momentum"),
                          flag_of(node, "affine"), statistics);
}

ValueId append_conv(Graph& graph, const NetNode& node, const Inputs& in) {
  WindowAttribute window = window_of(node);
  window.groups = count_of(node, "groups");
  return graph.conv(in[0], node.name, count_of(node, "channels"), window, flag_of(node, "bias"));
}

ValueId append_conv_transpose(Graph& graph, const NetNode& node, const Inputs& in) {
  WindowAttribute window = window_of(node);
  window.groups = count_of(node, "groups");
  const std::vector<uint16_t> more = sides_of(node, "more", 2);
  return graph.conv_transpose(in[0], node.name, count_of(node, "channels"), window, more[0], more[1],
                              flag_of(node, "bias"));
}

ValueId append_avg_pool(Graph& graph, const NetNode& node, const Inputs& in) {
  WindowAttribute window = window_of(node);
  window.counts_padding = flag_of(node, "counts_pad") ? 1 : 0;
  return graph.avg_pool(in[0], node.name, window);
}

ValueId append_unary(Graph& graph, const NetNode& node, const Inputs& in) {
  uint32_t function = 0;
  while (node.op != kUnaryFunctions[function].word) ++function;
  const char* parameter = kUnaryFunctions[function].parameter;
  return graph.unary(in[0], node.name, {function, parameter == nullptr ? 0 : number_of(node, parameter)});
}

// Returns `of_sample`, the shape of a sample, with the number of samples of `x` in front.
Shape with_samples(const Graph& graph, ValueId x, const std::vector<uint32_t>& of_sample) {
  Shape shape = {graph.tensor(x).shape[0]};
  shape.insert(shape.end(), of_sample.begin(), of_sample.end());
  return shape;
}

// Appends a pad. One given number is for all of a sample's dimensions.
ValueId append_pad(Graph& graph, const NetNode& node, const Inputs& in) {
  const auto around = [&](const char* key) {
    std::vector<uint32_t> given = counts_of(node, key);
    if (given.size() == 1) given.assign(graph.tensor(in[0]).rank - 1u, given[0]);
    given.insert(given.begin(), 0);
    return given;
  };
  return graph.pad(in[0], node.name, around("before"), around("behind"));
}

ValueId append_transpose(Graph& graph, const NetNode& node, const Inputs& in) {
  Shape order = with_samples(graph, in[0], counts_of(node, "order"));
  order[0] = 0;
  return graph.transpose(in[0], node.name, order);
}

template <ResizeKind kKind>
ValueId append_resize(Graph& graph, const NetNode& node, const Inputs& in) {
  const std::vector<uint16_t> size = sides_of(node, "size", 2);
  return graph.resize(in[0], node.name, size[0], size[1], kKind);
}

constexpr float kLearnedDeviation = 0.02f;  // of initial values, as in a ViT's positions and a BERT's tables

// Returns the graph's document starts, which separate a text from its padding, if the node is
// "masked"; kNoValue otherwise.
ValueId starts_for(Graph& graph, const NetNode& node) {
  if (!flag_of(node, "masked")) return kNoValue;
  if (graph.tensor(graph.input).dtype != DType::kI32)
    throw UserError(node.name + " (" + node.op + "): \"masked\" is for nets of texts; leave it out");
  if (graph.document_start == kNoValue)
    graph.document_start =
        graph.add_value("document_start", ValueKind::kInput, shape_of(graph.tensor(graph.input)), DType::kI32);
  return graph.document_start;
}

ValueId append_attention(Graph& graph, const NetNode& node, const Inputs& in) {
  AttentionAttribute attention = {.heads = count_of(node, "heads"),
                                  .kv_heads = count_of(node, "kv_heads"),
                                  .dropout = number_of(node, "dropout"),
                                  .stream = 0};
  if (attention.kv_heads == 0) attention.kv_heads = attention.heads;
  attention.scale = number_of(node, "scale");
  attention.causal = flag_of(node, "causal") ? 1 : 0;
  if (in.size() == 2) throw UserError(node.name + " (attention): has 2 inputs; must have one, [T,3C], or q, k and v");
  ValueId qkv = in[0];
  if (in.size() == 3) {
    const RopeAttribute side_by_side = {
        .heads = attention.heads, .kv_heads = attention.kv_heads, .rotary = 0, .neighbours = 0, .theta = 1};
    qkv = graph.rope(in[0], in[1], in[2], node.name + ".qkv", side_by_side);
  }
  return graph.attention(qkv, node.name, attention, starts_for(graph, node));
}

// Appends an embedding with PyTorch's padding_idx: the padding's row is read, but has no gradient.
// The result is detach(x) + (x - detach(x)) * f. Here x is the row that was read, and f is 0 for
// the padding, else 1. The value is x, and the gradient of x is multiplied by f.
ValueId append_padded_embedding(Graph& graph, const NetNode& node, const Inputs& in, ValueId table) {
  const uint32_t rows = count_of(node, "rows"), padding = count_of(node, "padding");
  const std::string refused = node.name + " (embedding): ";
  if (in.size() > 1)
    throw UserError(refused + "has \"padding\" and reads positions; add the positions by a node of their own");
  if (padding >= rows)
    throw UserError(refused + "padding is " + std::to_string(padding) + "; must be one of its " + std::to_string(rows) +
                    " rows");
  std::vector<float> factors(rows, 1);
  factors[padding] = 0;
  const ValueId each = graph.table(node.name + ".padding", std::move(factors));
  graph.values[each].tensor.rank = 2;  // the shape becomes [V,1]
  graph.values[each].tensor.shape[1] = 1;
  const ValueId x = graph.embedding(in[0], node.name + ".rows", table, kNoValue);
  const ValueId factor = graph.embedding(in[0], node.name + ".trained", each, kNoValue);
  const ValueId still = graph.detach(x, node.name + ".detached");
  const ValueId negative =
      graph.unary(still, node.name + ".negative", {static_cast<uint32_t>(UnaryFunction::kScale), -1});
  const ValueId none =
      graph.multiply(graph.add(x, negative, node.name + ".difference"), factor, node.name + ".factored");
  return graph.add(still, none, node.name);
}

// Appends a lookup of rows of one table, as torch.nn.Embedding. If a second input is given, which
// is "learned", its first rows are added as positions.
ValueId append_embedding(Graph& graph, const NetNode& node, const Inputs& in) {
  const ValueId table = graph.parameter(node.name + ".weight", {count_of(node, "rows"), count_of(node, "features")},
                                        InitKind::kNormal, kLearnedDeviation);
  if (!node.numbers.at("padding").empty()) return append_padded_embedding(graph, node, in, table);
  return graph.embedding(in[0], node.name, table,
                         in.size() == 2 ? graph.named(node.inputs[1], ValueKind::kParameter) : kNoValue);
}

// Appends R rows of a table [V,C] as [R,C] or, transposed, [C,R], and then reshapes them.
ValueId append_learned_rows(Graph& graph, const NetNode& node, const Inputs&) {
  const std::vector<double>& rows = node.numbers.at("rows");
  ValueId y =
      graph.learned_rows(node.name, counts_of(node, "shape"), {rows.begin(), rows.end()}, InitKind::kNormal, 0.02f);
  const uint32_t R = static_cast<uint32_t>(rows.size()), C = graph.tensor(y).shape[1];
  if (flag_of(node, "turned"))
    y = graph.transpose(graph.reshape(y, node.name + ".one", {1, R, C}), node.name + ".turned", {0, 2, 1});
  return graph.reshape(y, node.name + ".as", counts_of(node, "as"));
}

constexpr const char* kHead = "loss_head";

std::vector<NetOp> make_net_ops() {
  using G = Graph;
  using N = NetNode;
  const NumberKey channels = count_key("channels", 1, kMaxCount), groups = count_key("groups", 1, kMaxCount, 1),
                  kernel = count_key("kernel", 1, kMaxSide, std::nullopt, {1, 2}),
                  stride = count_key("stride", 1, kMaxSide, 1, {1, 2}),
                  dilation = count_key("dilation", 1, kMaxSide, 1, {1, 2}),
                  pad = count_key("pad", 0, kMaxSide, 0, {1, 2, 4}),
                  epsilon = number_key("epsilon", kEpsilon.low, kEpsilon.high, 1e-5),
                  count = count_key("count", 1, kMaxCount), axis = count_key("axis", 1, 3),
                  size = count_key("size", 1, kMaxSide, std::nullopt, {1, 2});
  std::vector<NetOp> ops = {
      {"conv", kOne, {channels, kernel, stride, pad, dilation, groups, flag_key("bias", false)}, append_conv},
      {"conv_transpose",
       kOne,
       {channels, kernel, stride, pad, dilation, groups, count_key("more", 0, kMaxSide, 0, {1, 2}),
        flag_key("bias", false)},
       append_conv_transpose},
      {"batch_norm",
       kOne,
       {epsilon, number_key("momentum", 0, 1, 0.1), flag_key("affine", true), open_flag_key("running")},
       append_batch_norm},
      {"group_norm",
       kOne,
       {count_key("groups", 1, kMaxCount), epsilon, flag_key("weight", true), flag_key("bias", true)},
       [](G& g, const N& n, const Inputs& in) {
         return g.group_norm(in[0], n.name, count_of(n, "groups"), number_of(n, "epsilon"), parts_of(n));
       }},
      {"layer_norm",
       kOne,
       {epsilon, flag_key("weight", true), flag_key("bias", true)},
       [](G& g, const N& n, const Inputs& in) {
         return g.layer_norm(in[0], n.name, number_of(n, "epsilon"), parts_of(n));
       }},
      {"rms_norm",
       kOne,
       {epsilon, flag_key("weight", true)},
       [](G& g, const N& n, const Inputs& in) {
         return g.rms_norm(in[0], n.name, number_of(n, "epsilon"), 0, 0, flag_of(n, "weight"));
       }},
      {"relu", kOne, {}, [](G& g, const N& n, const Inputs& in) { return g.relu(in[0], n.name); }},
      {"detach", kOne, {}, [](G& g, const N& n, const Inputs& in) { return g.detach(in[0], n.name); }},
      {"gelu",
       kOne,
       {flag_key("tanh", false)},
       [](G& g, const N& n, const Inputs& in) { return g.gelu(in[0], n.name, flag_of(n, "tanh")); }},
      {"add", kTwo, {}, [](G& g, const N& n, const Inputs& in) { return g.add(in[0], in[1], n.name); }},
      {"multiply", kTwo, {}, [](G& g, const N& n, const Inputs& in) { return g.multiply(in[0], in[1], n.name); }},
      {"softmax", kOne, {}, [](G& g, const N& n, const Inputs& in) { return g.softmax(in[0], n.name); }},
      {"product",
       kTwo,
       {flag_key("turned_a", false), flag_key("turned_b", false)},
       [](G& g, const N& n, const Inputs& in) {
         return g.product(in[0], in[1], n.name, {flag_of(n, "turned_a") ? 1u : 0u, flag_of(n, "turned_b") ? 1u : 0u});
       }},
      {"max_pool",
       kOne,
       {kernel, stride, pad, dilation},
       [](G& g, const N& n, const Inputs& in) { return g.max_pool(in[0], n.name, window_of(n)); }},
      {"avg_pool", kOne, {kernel, stride, pad, dilation, flag_key("counts_pad", false)}, append_avg_pool},
      {"global_pool",
       kOne,
       {flag_key("masked", false)},
       [](G& g, const N& n, const Inputs& in) { return g.global_pool(in[0], n.name, starts_for(g, n)); }},
      {"embedding",
       {1, 2},
       {count_key("rows", 1, kMaxCount), count_key("features", 1, kMaxCount),
        count_key("padding", 0, kMaxCount, std::nullopt, {0, 1})},
       append_embedding},
      {"dropout",
       kOne,
       {number_key("p", 0, 0.999)},
       [](G& g, const N& n, const Inputs& in) { return g.dropout(in[0], n.name, number_of(n, "p")); }},
      {"drop_path",
       kOne,
       {number_key("p", 0, 0.999)},
       [](G& g, const N& n, const Inputs& in) { return g.drop_path(in[0], n.name, number_of(n, "p")); }},
      {"learned",
       kNone,
       {count_key("shape", 1, kMaxCount, std::nullopt, {1, 2, 3, 4})},
       [](G& g, const N& n, const Inputs&) {
         return g.learned(n.name, counts_of(n, "shape"), InitKind::kNormal, kLearnedDeviation);
       }},
      {"learned_rows",
       kNone,
       {count_key("shape", 1, kMaxCount, std::nullopt, {2}), list_key("rows", 0, kMaxCount),
        flag_key("turned", false), count_key("as", 1, kMaxCount, std::nullopt, {1, 2, 3, 4})},
       append_learned_rows},
      {"pad",
       kOne,
       {count_key("before", 0, kMaxCount, 0, {1, 2, 3}), count_key("behind", 0, kMaxCount, 0, {1, 2, 3})},
       append_pad},
      {"resize_nearest", kOne, {size}, append_resize<ResizeKind::kNearest>},
      {"resize_bilinear", kOne, {size}, append_resize<ResizeKind::kBilinear>},
      {"resize_bilinear_aligned", kOne, {size}, append_resize<ResizeKind::kBilinearCorners>},
      {"reshape",
       kOne,
       {count_key("shape", 1, kMaxCount, std::nullopt, {1, 2, 3})},
       [](G& g, const N& n, const Inputs& in) {
         return g.reshape(in[0], n.name, with_samples(g, in[0], counts_of(n, "shape")));
       }},
      {"transpose", kOne, {count_key("order", 1, 3, std::nullopt, {1, 2, 3})}, append_transpose},
      {"slice",
       kOne,
       {axis, count_key("first", 0, kMaxCount), count},
       [](G& g, const N& n, const Inputs& in) {
         return g.slice(in[0], n.name, count_of(n, "axis"), count_of(n, "first"), count_of(n, "count"));
       }},
      {"concat",
       {2, 1000},
       {axis},
       [](G& g, const N& n, const Inputs& in) { return g.concat(in, n.name, count_of(n, "axis")); }},
      {"attention",
       {1, 3},
       {count_key("heads", 1, kMaxCount), count_key("kv_heads", 0, kMaxCount, 0), flag_key("causal", true),
        flag_key("masked", false), number_key("scale", 0, 1e6, 0), number_key("dropout", 0, 0.999, 0)},
       append_attention},
      {"linear",
       kOne,
       {count_key("features", 1, kMaxCount), flag_key("bias", true), flag_key("input_major", false)},
       append_linear},
      {kHead, kOne, {count_key("classes", 2, kMaxCount), flag_key("bias", true)}, append_loss_head},
      {"class_loss",
       kOne,
       {number_key("label_smoothing", 0, 0.999, 0), number_key("dice", 0, 1, 0),
        list_key("weights", kEpsilon.low, sense::kMaxFactor)},
       append_class_loss},
      {"mse_loss", kOne, {}, append_target_loss<TargetLossKind::kMse>},
      {"l1_loss", kOne, {}, append_target_loss<TargetLossKind::kL1>},
      {"huber_loss",
       kOne,
       {number_key("delta", kEpsilon.low, sense::kMaxFactor, 1)},
       append_target_loss<TargetLossKind::kHuber>},
      {"binary_loss",
       kOne,
       {list_key("positive_weights", kEpsilon.low, sense::kMaxFactor)},
       append_target_loss<TargetLossKind::kBinary>},
      {"infonce_loss",
       kOne,
       {number_key("temperature", 1e-3, 1e3, 0.07), flag_key("symmetric", true)},
       [](G& g, const N& n, const Inputs& in) {
         return append_pair_loss(g, n, in,
                                 {static_cast<uint32_t>(PairLossKind::kContrast), number_of(n, "temperature"),
                                  flag_of(n, "symmetric") ? 1u : 0u});
       }},
      {"cosine_loss",
       kOne,
       {number_key("margin", -1, 0.999, 0)},
       [](G& g, const N& n, const Inputs& in) {
         return append_pair_loss(g, n, in,
                                 {static_cast<uint32_t>(PairLossKind::kCosine), 0, 0, number_of(n, "margin")});
       }},
      {"similarity_loss",
       kOne,
       {},
       [](G& g, const N& n,
          const Inputs& in) { return append_pair_loss(g, n, in, {static_cast<uint32_t>(PairLossKind::kSimilarity)}); }},
  };
  for (const UnaryFunctionInfo& function : kUnaryFunctions) {
    std::vector<NumberKey> keys;
    if (function.parameter != nullptr)
      keys = {number_key(function.parameter, -sense::kMaxFactor, sense::kMaxFactor,
                         static_cast<double>(function.absent))};
    ops.push_back({function.word, kOne, keys, append_unary});
  }
  return ops;
}

const std::vector<NetOp>& net_ops() {
  static const std::vector<NetOp> ops = make_net_ops();
  return ops;
}

std::vector<std::string> op_words() {
  std::vector<std::string> words;
  for (const NetOp& op : net_ops()) words.emplace_back(op.word);
  return words;
}

const NetOp* find_op(const std::string& word) {
  const auto op =
      std::find_if(net_ops().begin(), net_ops().end(), [&](const NetOp& each) { return word == each.word; });
  return op == net_ops().end() ? nullptr : &*op;
}

double read_number(const JsonFields& fields, const NumberKey& key, const json& value) {
  switch (key.form) {
    case NumberKey::Form::kInteger:
      return static_cast<double>(
          fields.integer_in(key.key, value, static_cast<uint64_t>(key.low), static_cast<uint64_t>(key.high)));
    case NumberKey::Form::kNumber: return fields.number_in(key.key, value, {key.low, key.high});
    case NumberKey::Form::kFlag: break;
  }
  if (!value.is_boolean()) fields.refuse(key.key, "must be true or false, not " + json_shown(value));
  return value.get<bool>() ? 1 : 0;
}

std::vector<double> read_numbers(const JsonFields& fields, const NumberKey& key) {
  if (!fields.has(key.key) && key.absent) return {*key.absent};
  if (!fields.has(key.key) && (key.counts.empty() || key.counts[0] == 0)) return {};
  const json& value = fields.at(key.key);
  if (!value.is_array()) return {read_number(fields, key, value)};
  if (!key.counts.empty() && std::count(key.counts.begin(), key.counts.end(), value.size()) == 0) {
    std::string counts;
    for (const size_t count : key.counts) counts += (counts.empty() ? "" : " or ") + std::to_string(count);
    fields.refuse(key.key, "has " + std::to_string(value.size()) + " numbers; must have " + counts);
  }
  std::vector<double> numbers;
  for (const json& each : value) numbers.push_back(read_number(fields, key, each));
  return numbers;
}

// The names that the next node may read: the inputs and the earlier nodes.
struct Before {
  explicit Before(const NetModel& model) : input(model.input()), names({input}), last(input) {
    if (model.reads_texts()) names.insert(kNetTypes);
  }
  const std::string input;
  std::set<std::string> names;
  std::string last;
};

std::vector<std::string> read_inputs(const JsonFields& fields, const NetOp& op, const Before& before) {
  std::vector<std::string> inputs;
  const auto [minimum, maximum] = op.inputs;
  if (!fields.has("inputs") && minimum == 1) inputs = {before.last};
  fields.read("inputs", inputs);
  if (inputs.size() < minimum || inputs.size() > maximum) {
    const std::string right =
        minimum == maximum ? std::to_string(minimum) : std::to_string(minimum) + " to " + std::to_string(maximum);
    fields.refuse("inputs",
                  "must be " + right + " of a node of op \"" + op.word + "\", not " + std::to_string(inputs.size()));
  }
  for (const std::string& input : inputs) {
    if (before.names.count(input) == 0)
      fields.refuse("inputs", json_shown(input) + " is neither \"" + before.input + "\" nor a node before this one");
  }
  return inputs;
}

NetNode read_node(const JsonFields& fields, const Before& before) {
  NetNode node;
  fields.require("op", "give " + either_of(op_words()));
  fields.read("op", node.op);
  const NetOp* op = find_op(node.op);
  if (op == nullptr)
    fields.refuse("op", json_shown(node.op) + " is not available (yet); available are " + quoted_list(op_words()));
  std::vector<std::string> keys = {"op", "name", "inputs"};
  for (const NumberKey& key : op->keys) keys.emplace_back(key.key);
  fields.allow_only(keys);
  fields.require("name", "give the layer's name, under which its parameters lie in files of weights");
  fields.read("name", node.name);
  if (node.name.empty()) fields.refuse("name", "must not be empty");
  if (before.names.count(node.name) > 0)
    fields.refuse("name", json_shown(node.name) + " stands there before; each node must have a name of its own");
  node.inputs = read_inputs(fields, *op, before);
  for (const NumberKey& key : op->keys) node.numbers[key.key] = read_numbers(fields, key);
  return node;
}

bool is_loss_word(const std::string& op) { return op == kHead || op.ends_with("_loss"); }

std::vector<std::string> loss_words() {
  std::vector<std::string> words = op_words();
  std::erase_if(words, [](const std::string& word) { return !is_loss_word(word); });
  return words;
}

// Requires one order of axes in the weights of all layers that may have an adapter.
void check_major(const JsonFields& fields, const NetModel& model) {
  std::string by_input, by_output;
  for (const NetNode& node : model.nodes) {
    const bool is_linear = node.op == "linear";
    if (is_linear || node.op == "conv") (is_linear && flag_of(node, "input_major") ? by_input : by_output) = node.name;
  }
  if (!by_input.empty() && !by_output.empty())
    fields.refuse("nodes", "node " + json_shown(by_input) + " is \"input_major\", and " + json_shown(by_output) +
                               " is not; all linear layers must be alike, and then there is no convolution");
}

// Requires that the second input of an embedding, the positions, is "learned".
void check_positions(const JsonFields& fields, const NetModel& model) {
  std::map<std::string, std::string> ops;
  for (size_t n = 0; n < model.nodes.size(); ++n) {
    const NetNode& node = model.nodes[n];
    ops[node.name] = node.op;
    if (node.op != "embedding" || node.inputs.size() != 2 || ops[node.inputs[1]] == "learned") continue;
    fields.element("nodes", n)
        .refuse("inputs",
                json_shown(node.inputs[1]) + ", the second, must be a node of op \"learned\", of the positions");
  }
}

// Requires that the loss is the last node, and that every other node is read.
void check_use(const JsonFields& fields, const NetModel& model) {
  if (model.nodes.empty() || !is_loss_word(model.nodes.back().op))
    fields.refuse("nodes", "must end with a node of op " + either_of(loss_words()));
  std::set<std::string> read;
  for (const NetNode& node : model.nodes) read.insert(node.inputs.begin(), node.inputs.end());
  for (size_t n = 0; n + 1 < model.nodes.size(); ++n) {
    const NetNode& node = model.nodes[n];
    if (is_loss_word(node.op))
      fields.refuse("nodes", "node " + json_shown(node.name) + ": a \"" + node.op + "\" must be the last node");
    if (read.count(node.name) == 0)
      fields.refuse("nodes", "node " + json_shown(node.name) + ": nothing reads what it writes; leave it out");
  }
}

void read_tokens(const JsonFields& tokens, NetModel& model) {
  tokens.allow_only({"length"});
  tokens.require("length", "give the tokens of a sample");
  tokens.read("length", model.sequence, 1, kMaxCount, {"How many tokens each sample has", "tokens"});
}

void read_text(const JsonFields& text, NetModel& model) {
  text.allow_only({"length", "pad"});
  text.require("length", "give the tokens of a text, to which each is cut or padded");
  text.read("length", model.text_length, 1, kMaxCount, {"What each text is cut or padded to", "tokens"});
  text.read("pad", model.pad, 0, kMaxCount, {"The token that stands behind the end of a text"});
}

void read_tied(const JsonFields& fields, NetModel& model) {
  fields.note(
      "tied", [] { return object_form(); }, [] { return json::object(); },
      {"Parameters that are those of a node before, whose gradients are added up: {\"fc2.weight\": \"fc1.weight\"}"});
  if (!fields.has("tied")) return;
  const json& tied = fields.at("tied");
  if (!tied.is_object())
    fields.refuse("tied", "must be names of parameters, each with that of another's, not " + json_shown(tied));
  for (const auto& [name, other] : tied.items()) {
    if (!other.is_string())
      fields.refuse("tied." + name, "must be the name of a parameter of a node before, not " + json_shown(other));
    model.tied[name] = other.get<std::string>();
  }
}

void read_stored(const JsonFields& fields, NetModel& model) {
  fields.note(
      "stored", [] { return object_form(); }, [] { return json::object(); },
      {"How files of weights hold parameters, where it is not by the node's name and shape: {\"attn.weight\": "
       "{\"name\": \"attn.in_proj_weight\"}}; "
       "\"shape\" is the file's, and \"sides\" and \"order\" tell which of its numbers is which"});
  if (!fields.has("stored")) return;
  if (!fields.at("stored").is_object())
    fields.refuse("stored", "must be names of parameters, each with an object, not " + json_shown(fields.at("stored")));
  const JsonFields all = fields.object("stored");
  for (const auto& [name, value] : fields.at("stored").items()) {
    const JsonFields own = all.object(name);
    own.allow_only({"name", "shape", "sides", "order"});
    NetModel::Stored& stored = model.stored[name];
    stored.name = name;
    own.read("name", stored.name);
    if (stored.name.empty()) own.refuse("name", "must not be empty");
    own.read("shape", stored.form.shape, 1, kMaxCount);
    own.read("sides", stored.form.sides, 1, kMaxCount);
    own.read("order", stored.form.order, 0, kMaxCount);
  }
}

// Returns the shape of a sample that the loss reads. Returns {} for a head. Also returns {} if the
// nodes make no graph; check() reports this error.
std::vector<uint32_t> output_of(const NetModel& model) {
  if (model.nodes.back().op == kHead) return {};
  Graph graph;
  try {
    model.build(graph, {.samples = 1, .sequence = 0});
  } catch (const UserError&) {
    return {};
  }
  Shape shape = shape_of(graph.tensor(graph.nodes.back().inputs[0]));
  shape.erase(shape.begin());
  return shape;
}

}  // namespace

NetModel NetModel::read(const JsonFields& fields) {
  fields.allow_only({"family", "image", "text", "tokens", "nodes", "tied", "findings", "stored", kWriterKey});
  NetModel model;
  for (const auto& [second, first] : {std::pair("text", "image"), {"tokens", "image"}, {"tokens", "text"}}) {
    if (fields.has(second) && fields.has(first))
      fields.refuse(second, "cannot go with \"" + std::string(first) + "\": a net reads one of them");
  }
  if (fields.has("tokens")) {
    read_tokens(fields.object("tokens", {"In place of \"image\", of a language model: {\"length\"}", "", "none"}),
                model);
  } else if (fields.has("text")) {
    read_text(fields.object("text",
                            {"In place of \"image\", of a net that reads texts: {\"length\", \"pad\"}", "", "none"}),
              model);
  } else {
    const auto [height, width, channels] = read_image_size(fields);
    model.image_height = height;
    model.image_width = width;
    model.image_channels = channels;
  }
  fields.require("nodes", "give the list of the net's nodes, in the order of the forward");
  fields.note(
      "nodes", [] { return list_form(object_form()); }, [] { return json(); },
      {"The nodes in the order of the forward, the loss last: {\"op\", \"name\", \"inputs\", and the op's own keys}; "
       "\"The net graph\" in tools/FILES.md has the ops"});
  const json& nodes = fields.list_at("nodes");
  if (nodes.size() > kMaxNodes)
    fields.refuse("nodes", "must be at most " + std::to_string(kMaxNodes) + ", not " + std::to_string(nodes.size()));
  Before before(model);
  for (size_t n = 0; n < nodes.size(); ++n) {
    model.nodes.push_back(read_node(fields.element("nodes", n), before));
    before.last = model.nodes.back().name;
    before.names.insert(before.last);
  }
  check_use(fields, model);
  check_positions(fields, model);
  check_major(fields, model);
  read_tied(fields, model);
  fields.note(
      "findings", [] { return list_form(object_form()); }, [] { return json::array(); },
      {"What `reprise import` says of the parameters (\"What is trained\" in tools/COMMANDS.md), which `reprise "
       "parameters` repeats"});
  read_stored(fields, model);
  model.output = output_of(model);
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

namespace {
json json_of(double number, NumberKey::Form form) {
  switch (form) {
    case NumberKey::Form::kInteger: return static_cast<uint64_t>(number);
    case NumberKey::Form::kNumber: return number;
    case NumberKey::Form::kFlag: break;
  }
  return number != 0;
}
}  // namespace

json NetModel::write() const {
  json list = json::array();
  for (const NetNode& node : nodes) {
    json value = {{"op", node.op}, {"name", node.name}, {"inputs", node.inputs}};
    for (const NumberKey& key : find_op(node.op)->keys) {
      const std::vector<double>& numbers = node.numbers.at(key.key);
      json written = json::array();
      if (numbers.empty()) continue;
      for (const double number : numbers) written.push_back(json_of(number, key.form));
      value[key.key] = written.size() == 1 ? written[0] : written;
    }
    list.push_back(std::move(value));
  }
  json net = {{"nodes", list}};
  if (is_of_language()) net["tokens"] = {{"length", sequence}};
  else if (reads_texts()) net["text"] = {{"length", text_length}, {"pad", pad}};
  else net["image"] = {image_height, image_width, image_channels};
  if (!tied.empty()) net["tied"] = tied;
  for (const auto& [name, own] : stored) {
    json value = json::object();
    if (own.name != name) value["name"] = own.name;
    if (!own.form.shape.empty()) value["shape"] = own.form.shape;
    if (!own.form.sides.empty()) value["sides"] = own.form.sides, value["order"] = own.form.order;
    net["stored"][name] = value;
  }
  return net;
}

namespace {
// Returns the number of rows of the smallest table that reads this input, or `minimum` if that is
// smaller and not 0. Returns `minimum` if there is no table.
int rows_of(const NetModel& model, const char* input, int minimum = 0) {
  for (const NetNode& node : model.nodes) {
    if (node.op != "embedding" || node.inputs[0] != input) continue;
    const int rows = static_cast<int>(count_of(node, "rows"));
    minimum = minimum == 0 ? rows : std::min(minimum, rows);
  }
  return minimum;
}

// Returns the number of tokens for which all tables, and the head of a language model, have a row.
int vocabulary_of(const NetModel& model) {
  const bool has_head = model.is_of_language() && model.nodes.back().op == kHead;
  return rows_of(model, kNetTokens, has_head ? static_cast<int>(count_of(model.nodes.back(), "classes")) : 0);
}
}  // namespace

namespace {
// Returns the target of a loss without classes.
ModelDescription::Target target_of(const std::string& loss) {
  using Target = ModelDescription::Target;
  const std::pair<const char*, Target> targets[] = {{"binary_loss", Target::kLabels},
                                                    {"infonce_loss", Target::kPair},
                                                    {"cosine_loss", Target::kAlike},
                                                    {"similarity_loss", Target::kSimilarity}};
  for (const auto& [word, target] : targets) {
    if (loss == word) return target;
  }
  return Target::kNumbers;
}
}  // namespace

ModelDescription NetModel::describe() const {
  using Target = ModelDescription::Target;
  const bool input_major = std::any_of(nodes.begin(), nodes.end(), [](const NetNode& node) {
    return node.op == "linear" && flag_of(node, "input_major");
  });
  if (is_of_language())
    return {.input = ModelDescription::Input::kTokens,
            .vocabulary = vocabulary_of(*this),
            .longest_sequence = sequence,
            .one_length = true,
            .input_major = input_major};
  ModelDescription description = {.input = reads_texts() ? ModelDescription::Input::kTexts
                                                         : ModelDescription::Input::kImages,
                                  .image_height = image_height,
                                  .image_width = image_width,
                                  .image_channels = image_channels,
                                  .output = output,
                                  .vocabulary = vocabulary_of(*this),
                                  .text_length = text_length,
                                  .pad = pad,
                                  .token_types = rows_of(*this, kNetTypes),
                                  .input_major = input_major};
  const NetNode& loss = nodes.back();
  if (loss.op == kHead) {
    description.classes = static_cast<int>(count_of(loss, "classes"));
  } else if (loss.op == "class_loss") {
    description.target = output.size() > 1 ? Target::kClassMap : Target::kClass;
    description.classes = output.empty() ? 0 : static_cast<int>(output.back());
    description.class_weights = loss.numbers.at("weights");
  } else {
    description.target = target_of(loss.op);
  }
  return description;
}

namespace {
// Refuses a language model in which the output for a position depends on later tokens. Such a model
// could read the token that it must predict.
void require_order(const Graph& graph) {
  if (graph.document_start != kNoValue)
    throw UserError("\"masked\" is for nets of texts, which are padded; leave it out");
  if (graph.nodes.back().op != Op::kLossHead)
    throw UserError("the last node must be a \"loss_head\", as in every language model");
  const Node* node = node_that_sees_ahead(graph);
  if (node == nullptr) return;
  throw UserError(node->name + " (" + op_name(node->op) +
                  "): reads tokens behind those that it writes for; in a language model attention must be causal, and "
                  "every other node keep tokens apart");
}
}  // namespace

void NetModel::check(const RecipeRules& rules, MicroBatch batch) const {
  Graph graph;
  std::string problem;
  if (is_of_language()) {
    rules.require(batch.sequence == sequence, "sequence",
                  "must be the net's own length, " + std::to_string(sequence) + ", not " +
                      std::to_string(batch.sequence));
  }
  try {
    build(graph, batch);
    if (is_of_language()) require_order(graph);
  } catch (const UserError& error) {
    problem = error.what();
  }
  rules.require(problem.empty(), "model.nodes", problem);
  rules.require(
      describe().target != ModelDescription::Target::kPair || batch.samples > 1, "batch",
      "must be 2 at least with an \"infonce_loss\", which tells each pair from the others of its micro-batch");
}

void NetModel::build(Graph& graph, MicroBatch batch) const {
  const auto size = [](int n) { return static_cast<uint32_t>(n); };
  const uint32_t rows = size(batch.samples * describe().inputs_of_sample());
  if (is_of_language()) {
    graph.input = graph.add_value(kNetTokens, ValueKind::kInput, {rows, size(batch.sequence)}, DType::kI32);
  } else if (reads_texts()) {
    graph.input = graph.add_value(kNetTokens, ValueKind::kInput, {rows, size(text_length)}, DType::kI32);
    if (pad >= vocabulary_of(*this))
      throw UserError("text.pad: must be a token that every embedding has, not " + std::to_string(pad));
  } else {
    graph.input = graph.add_value(kNetImages, ValueKind::kInput,
                                  {rows, size(image_height), size(image_width), size(image_channels)});
  }
  for (const auto& [name, other] : tied) graph.tie(name, other);
  for (const auto& [name, own] : stored) graph.store(name, own.name, own.form);
  if (is_of_language()) {
    add_labels(graph, shape_of(graph.tensor(graph.input)), DType::kI32);
  } else if (nodes.back().op == kHead) {
    add_labels(graph, {size(batch.samples)}, DType::kI32);
  }
  std::map<std::string, ValueId> written = {{input(), graph.input}};
  const auto reads_types = [](const NetNode& node) {
    return std::count(node.inputs.begin(), node.inputs.end(), kNetTypes) > 0;
  };
  if (reads_texts() && std::any_of(nodes.begin(), nodes.end(), reads_types))
    written[kNetTypes] = graph.token_types =
        graph.add_value(kNetTypes, ValueKind::kInput, shape_of(graph.tensor(graph.input)), DType::kI32);
  for (const NetNode& node : nodes) {
    Inputs inputs;
    for (const std::string& input : node.inputs) inputs.push_back(written.at(input));
    written[node.name] = find_op(node.op)->append(graph, node, inputs);
  }
  graph.require_tied();
  graph.require_stored();
}

}  // namespace reprise
