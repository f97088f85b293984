// Building blocks of a network and their shape inference.
// Here so that models say only what they are made of.
#include "tools/graph/graph.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace reprise {

uint32_t window_output(uint32_t input, uint32_t kernel, uint32_t stride, uint32_t pad) {
  if (input + 2 * pad < kernel) throw std::invalid_argument("window larger than its input");
  return (input + 2 * pad - kernel) / stride + 1;
}

std::array<uint32_t, kMaxRank> padded_shape(const Shape& shape) {
  std::array<uint32_t, kMaxRank> padded = {1, 1, 1, 1};
  for (size_t i = 0; i < shape.size(); ++i) padded[i] = shape[i];
  return padded;
}

Graph::Graph(DType stored) : stored_(stored) {
  scalars = add_value("scalars", ValueKind::kScalars, {static_cast<uint32_t>(sizeof(StepScalars))}, DType::kU8);
}

ValueId Graph::add_value(const std::string& name, ValueKind kind, const Shape& shape) {
  const bool is_activation = kind == ValueKind::kInput || kind == ValueKind::kActivation || kind == ValueKind::kGradient;
  return add_value(name, kind, shape, is_activation ? stored_ : DType::kF32);
}

ValueId Graph::add_value(const std::string& name, ValueKind kind, const Shape& shape, DType dtype) {
  if (shape.size() > kMaxRank) throw std::invalid_argument(name + ": more than four dimensions");
  Value value;
  value.name = name;
  value.kind = kind;
  value.tensor.dtype = dtype;
  value.tensor.rank = static_cast<uint8_t>(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) value.tensor.shape[i] = shape[i];
  value.tensor.bytes = align_up(value.tensor.used_bytes());
  values.push_back(value);
  return static_cast<ValueId>(values.size() - 1);
}

ValueId Graph::parameter(const std::string& name, const Shape& shape, InitKind init, float scale) {
  const ValueId v = add_value(name, ValueKind::kParameter, shape);
  values[v].trainable = true;
  values[v].init = init;
  values[v].init_scale = scale;
  return v;
}

ValueId Graph::table(const std::string& name, std::vector<float> numbers) {
  const ValueId v = add_value(name, ValueKind::kTable, {static_cast<uint32_t>(numbers.size())}, DType::kF32);
  values[v].init = InitKind::kTable;
  values[v].numbers = std::move(numbers);
  return v;
}

Node& Graph::node(Op op, const std::string& name, std::vector<ValueId> inputs) {
  Node n;
  n.op = op;
  n.name = name;
  n.inputs = std::move(inputs);
  nodes.push_back(std::move(n));
  return nodes.back();
}

ValueId Graph::conv(ValueId x, const std::string& name, uint32_t out_channels, WindowAttribute window) {
  const Tensor in = tensor(x);
  const uint32_t channels = in.shape[3];
  // torchvision: kaiming_normal_(mode="fan_out", nonlinearity="relu").
  const float fan_out = static_cast<float>(out_channels) * window.kernel_h * window.kernel_w;
  const ValueId weight = parameter(name + ".weight", {out_channels, window.kernel_h, window.kernel_w, channels}, InitKind::kNormal,
                                   std::sqrt(2.0f / fan_out));
  const ValueId y = add_value(name, ValueKind::kActivation,
                              {in.shape[0], window_output(in.shape[1], window.kernel_h, window.stride, window.pad),
                               window_output(in.shape[2], window.kernel_w, window.stride, window.pad), out_channels});
  Node& n = node(Op::kConv, name, {x});
  n.attribute = attributes.intern(window);
  n.outputs = {y};
  n.parameters = {weight};
  return y;
}

ValueId Graph::batch_norm(ValueId x, const std::string& name, float epsilon, float momentum) {
  const Tensor in = tensor(x);
  const uint32_t channels = in.shape[3];
  const ValueId gamma = parameter(name + ".weight", {channels}, InitKind::kConstant, 1.0f);
  const ValueId beta = parameter(name + ".bias", {channels}, InitKind::kConstant, 0.0f);
  const ValueId running_mean = add_value(name + ".running_mean", ValueKind::kBuffer, {channels});
  const ValueId running_var = add_value(name + ".running_var", ValueKind::kBuffer, {channels});
  values[running_var].init_scale = 1.0f;
  const ValueId batches = add_value(name + ".num_batches_tracked", ValueKind::kBuffer, {}, DType::kI64);
  const ValueId y = add_value(name, ValueKind::kActivation, {in.shape[0], in.shape[1], in.shape[2], channels});
  const ValueId mean = add_value(name + ".mean", ValueKind::kSmall, {channels});
  const ValueId rstd = add_value(name + ".rstd", ValueKind::kSmall, {channels});
  Node& n = node(Op::kBatchNorm, name, {x});
  n.attribute = attributes.intern(NormAttribute{epsilon, momentum, in.elements() / channels});
  n.outputs = {y, mean, rstd};
  n.parameters = {gamma, beta};
  n.buffers = {running_mean, running_var, batches};
  return y;
}

namespace {
Shape shape_of(const Tensor& t) { return Shape(t.shape, t.shape + t.rank); }
}  // namespace

ValueId Graph::relu(ValueId x, const std::string& name) {
  const ValueId y = add_value(name, ValueKind::kActivation, shape_of(tensor(x)));
  node(Op::kRelu, name, {x}).outputs = {y};
  return y;
}

ValueId Graph::add(ValueId a, ValueId b, const std::string& name) {
  const ValueId y = add_value(name, ValueKind::kActivation, shape_of(tensor(a)));
  node(Op::kAdd, name, {a, b}).outputs = {y};
  return y;
}

ValueId Graph::max_pool(ValueId x, const std::string& name, WindowAttribute window) {
  const Tensor in = tensor(x);
  const Shape shape = {in.shape[0], window_output(in.shape[1], window.kernel_h, window.stride, window.pad),
                       window_output(in.shape[2], window.kernel_w, window.stride, window.pad), in.shape[3]};
  const ValueId y = add_value(name, ValueKind::kActivation, shape);
  const ValueId index = add_value(name + ".index", ValueKind::kActivation, shape, DType::kU8);
  Node& n = node(Op::kMaxPool, name, {x});
  n.attribute = attributes.intern(window);
  n.outputs = {y, index};
  return y;
}

ValueId Graph::global_pool(ValueId x, const std::string& name) {
  const Tensor in = tensor(x);
  const ValueId y = add_value(name, ValueKind::kActivation, {in.shape[0], in.shape[3]});
  node(Op::kGlobalPool, name, {x}).outputs = {y};
  return y;
}

bool AdapterChoice::takes(const std::string& layer) const {
  const auto ends = [&layer](const std::string& target) { return ("." + layer).ends_with("." + target); };
  return rank > 0 && (targets.empty() || std::any_of(targets.begin(), targets.end(), ends));
}

ValueId Graph::linear(ValueId x, const std::string& name, uint32_t out_features, bool input_major, bool bias, float init_std) {
  if (!adapters.takes(name)) return linear(x, name, out_features, input_major, bias, init_std, kNoValue, kNoValue);
  const ValueId read = adapters.dropout > 0 ? dropout(x, name + ".lora_dropout", adapters.dropout) : x;
  const ValueId hidden = low_rank(read, name, adapters.rank, adapters.scale);
  const ValueId up = parameter(name + ".lora_B.weight", {out_features, adapters.rank}, InitKind::kConstant, 0.0f);
  return linear(x, name, out_features, input_major, bias, init_std, hidden, up);
}

ValueId Graph::linear(ValueId x, const std::string& name, uint32_t out_features, bool input_major, bool bias, float init_std, ValueId hidden,
                      ValueId up) {
  const Tensor in = tensor(x);
  const uint32_t channels = static_cast<uint32_t>(in.last_dimension());
  const Shape weight_shape = input_major ? Shape{channels, out_features} : Shape{out_features, channels};
  const ValueId weight = parameter(name + ".weight", weight_shape, InitKind::kNormal, init_std);
  const ValueId b = bias ? parameter(name + ".bias", {out_features}, InitKind::kConstant, 0.0f) : kNoValue;
  Shape shape = shape_of(in);
  shape.back() = out_features;
  const ValueId y = add_value(name, ValueKind::kActivation, shape);
  const auto is_hidden = [hidden](const Node& n) { return !n.outputs.empty() && n.outputs[0] == hidden; };
  const auto low_rank = hidden == kNoValue ? nodes.end() : std::find_if(nodes.begin(), nodes.end(), is_hidden);
  const size_t adapter = low_rank == nodes.end() ? kNoNode : static_cast<size_t>(low_rank - nodes.begin());
  Node& n = node(Op::kLinear, name, {x});
  n.attribute = attributes.intern(LinearAttribute{input_major ? 1u : 0u});
  n.outputs = {y};
  n.parameters = {weight, b};
  if (adapter != kNoNode) {
    n.low_rank = adapter;
    n.inputs.push_back(hidden);
    n.parameters.push_back(up);
  }
  return y;
}

ValueId Graph::low_rank(ValueId x, const std::string& name, uint32_t rank, float scale) {
  const uint32_t channels = static_cast<uint32_t>(tensor(x).last_dimension());
  const ValueId down = parameter(name + ".lora_A.weight", {rank, channels}, InitKind::kUniform, 1.0f / std::sqrt(static_cast<float>(channels)));
  Shape shape = shape_of(tensor(x));
  shape.back() = rank;
  const ValueId h = add_value(name + ".lora_A", ValueKind::kActivation, shape);
  Node& n = node(Op::kLinear, name + ".lora_A", {x});
  n.attribute = attributes.intern(LinearAttribute{0, scale});
  n.outputs = {h};
  n.parameters = {down, kNoValue};
  return h;
}

ValueId Graph::layer_norm(ValueId x, const std::string& name, float epsilon) {
  const Tensor in = tensor(x);
  const uint32_t channels = static_cast<uint32_t>(in.last_dimension());
  const ValueId gamma = parameter(name + ".weight", {channels}, InitKind::kConstant, 1.0f);
  const ValueId beta = parameter(name + ".bias", {channels}, InitKind::kConstant, 0.0f);
  Shape rows = shape_of(in);
  rows.pop_back();
  const ValueId y = add_value(name, ValueKind::kActivation, shape_of(in));
  const ValueId mean = add_value(name + ".mean", ValueKind::kSmall, rows);
  const ValueId rstd = add_value(name + ".rstd", ValueKind::kSmall, rows);
  Node& n = node(Op::kLayerNorm, name, {x});
  n.attribute = attributes.intern(NormAttribute{epsilon, 0.0f, 0});
  n.outputs = {y, mean, rstd};
  n.parameters = {gamma, beta};
  return y;
}

ValueId Graph::rms_norm(ValueId x, const std::string& name, float epsilon, uint32_t columns) {
  const Tensor in = tensor(x);
  const uint32_t all = static_cast<uint32_t>(in.last_dimension()), own = columns == 0 ? all : columns;
  const ValueId gamma = parameter(name + ".weight", {own}, InitKind::kConstant, 1.0f);
  Shape rows = shape_of(in);
  rows.pop_back();
  if (own != all) rows.push_back(all / own);
  const ValueId y = add_value(name, ValueKind::kActivation, shape_of(in));
  const ValueId rstd = add_value(name + ".rstd", ValueKind::kSmall, rows);
  Node& n = node(Op::kRmsNorm, name, {x});
  n.attribute = attributes.intern(NormAttribute{epsilon, 0.0f, 0});
  n.outputs = {y, rstd};
  n.parameters = {gamma};
  return y;
}

ValueId Graph::gelu(ValueId x, const std::string& name, bool tanh_form) {
  const ValueId y = add_value(name, ValueKind::kActivation, shape_of(tensor(x)));
  Node& n = node(Op::kGelu, name, {x});
  n.attribute = attributes.intern(GeluAttribute{tanh_form ? 1u : 0u});
  n.outputs = {y};
  return y;
}

ValueId Graph::swiglu(ValueId gate, ValueId up, const std::string& name) {
  const ValueId y = add_value(name, ValueKind::kActivation, shape_of(tensor(gate)));
  node(Op::kSwiglu, name, {gate, up}).outputs = {y};
  return y;
}

ValueId Graph::embedding(ValueId tokens, const std::string& name, ValueId table, ValueId positions) {
  Shape shape = shape_of(tensor(tokens));
  shape.push_back(tensor(table).shape[1]);
  const ValueId y = add_value(name, ValueKind::kActivation, shape);
  Node& n = node(Op::kEmbedding, name, {tokens});
  n.outputs = {y};
  n.parameters = {table, positions};
  return y;
}

ValueId Graph::attention(ValueId qkv, const std::string& name, uint32_t heads, uint32_t kv_heads, float dropout, ValueId document_start) {
  const Tensor in = tensor(qkv);
  const uint32_t B = in.shape[0], T = in.shape[1], C = in.shape[2] / (heads + 2 * kv_heads) * heads;
  const ValueId y = add_value(name, ValueKind::kActivation, {B, T, C});
  const ValueId lse = add_value(name + ".lse", ValueKind::kSmall, {B, heads, T});
  Node& n = node(Op::kAttention, name, {qkv});
  if (document_start != kNoValue) n.inputs.push_back(document_start);
  n.attribute = attributes.intern(AttentionAttribute{heads, kv_heads, dropout, next_stream_++});
  n.outputs = {y, lse};
  return y;
}

ValueId Graph::rope(ValueId q, ValueId k, ValueId v, const std::string& name, const RopeAttribute& rope, ValueId document_start,
                    ValueId frequencies) {
  Shape shape = shape_of(tensor(q));
  shape.back() += tensor(k).shape[2] + tensor(v).shape[2];
  const ValueId y = add_value(name, ValueKind::kActivation, shape);
  Node& n = node(Op::kRope, name, {q, k, v});
  if (document_start != kNoValue) n.inputs.push_back(document_start);
  n.attribute = attributes.intern(rope);
  n.outputs = {y};
  n.parameters = {frequencies};
  return y;
}

ValueId Graph::dropout(ValueId x, const std::string& name, float probability) {
  const ValueId y = add_value(name, ValueKind::kActivation, shape_of(tensor(x)));
  Node& n = node(Op::kDropout, name, {x});
  n.attribute = attributes.intern(DropoutAttribute{probability, next_stream_++});
  n.outputs = {y};
  return y;
}

void Graph::loss_head(ValueId x, const std::string& name, ValueId weight, ValueId bias) {
  Node& n = node(Op::kLossHead, name, {x});
  n.parameters = {weight, bias};
}

KernelCall kernel_call(const Graph& graph, const Call& call) {
  KernelCall kernel{call.op, call.pass, call.attribute, call.accumulate, {}};
  for (const ValueId v : call.arguments) kernel.tensors.push_back(v == kNoValue ? nullptr : &graph.tensor(v));
  return kernel;
}

}  // namespace reprise
