// Appends nodes to a graph, with the checks and the shape inference of each op. So a model only
// lists its nodes, and an error names the node that is wrong.
#include "tools/plan/graph/graph.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tools/files/io/error.h"

namespace reprise {

std::string op_name(Op op) {
  const auto found =
      std::find_if(std::begin(kOps), std::end(kOps), [op](const KernelInfo& kernel) { return kernel.op == op; });
  const std::string name = found == std::end(kOps) ? "" : found->name;
  return name.substr(0, name.find('.'));
}

namespace {


std::string shape_text(const Shape& shape) {
  std::string text;
  for (const uint32_t d : shape) text += (text.empty() ? "" : ",") + std::to_string(d);
  return "[" + text + "]";
}

// Checks of one node. Each throws a UserError that names the node, its op, the wrong value and a
// correct one.
class NodeRules {
 public:
  NodeRules(const Graph& graph, Op op, const std::string& name) : graph_(graph), op_(op), name_(name) {
    require(!name.empty(), "has no name; give each node the name of its layer");
    require(graph.nodes.empty() || !is_loss(graph.nodes.back().op),
            "stands behind the loss; the loss must be the last node");
  }

  void require(bool holds, const std::string& otherwise) const {
    if (!holds) throw UserError((name_.empty() ? "a node" : name_) + " (" + op_name(op_) + "): " + otherwise);
  }

  // Returns a copy, because add_value() may move the elements of the vector `values`.
  Tensor value(ValueId v, const std::string& what, DType dtype) const {
    require(v < graph_.values.size(), what + " is no value of this graph");
    const Tensor tensor = graph_.tensor(v);
    require(tensor.dtype == dtype, what + " is " + text(v) + "; must be of " + dtype_info(dtype).name);
    return tensor;
  }
  Tensor activation(ValueId v, const std::string& what, uint32_t min_rank, uint32_t max_rank,
                    const std::string& form) const {
    const Tensor tensor = value(v, what, graph_.stored());
    const ValueKind kind = graph_.values[v].kind;
    require(kind == ValueKind::kActivation || kind == ValueKind::kInput,
            what + " is " + text(v) + "; must be what a node writes, or the input");
    require(tensor.rank >= min_rank && tensor.rank <= max_rank, what + " is " + text(v) + "; must be " + form);
    return tensor;
  }
  Tensor activation(ValueId v, const std::string& what) const { return activation(v, what, 0, kMaxRank, ""); }
  Tensor rows(ValueId v, const std::string& what) const {
    return activation(v, what, 1, kMaxRank, "rows of channels, [...,C]");
  }
  Tensor image(ValueId v) const { return activation(v, "x", 4, 4, "images, [N,H,W,C]"); }
  Tensor sequence(ValueId v, const std::string& what) const {
    return activation(v, what, 3, 3, "sequences of channels, [B,T,C]");
  }

  void require_shape(ValueId v, const std::string& what, const Shape& right) const {
    require(shape_of(graph_.tensor(v)) == right, what + " is " + text(v) + "; must be " + shape_text(right));
  }
  void require_broadcast(ValueId v, const std::string& what, const Tensor& to) const {
    require(contract::is_broadcast(to, graph_.tensor(v)), what + " is " + text(v) + "; must be " +
                                                              shape_text(shape_of(to)) +
                                                              ", or its last dimensions, each as there or 1");
  }
  // Requires an existing dimension other than 0, the dimension of the samples.
  void require_axis(uint32_t axis, const Shape& shape) const {
    require(axis > 0 && axis < shape.size(), "works along dimension " + std::to_string(axis) + "; must be 1 to " +
                                                 std::to_string(shape.size() - 1) + " (dimension 0 counts samples)");
  }
  // Requires a parameter or table of this shape; kNoValue, an absent table, is accepted.
  void require_table(ValueId v, const std::string& what, const Shape& right) const {
    if (v == kNoValue) return;
    value(v, what, DType::kF32);
    require(graph_.values[v].kind != ValueKind::kActivation,
            what + " is " + text(v) + "; must be a parameter or a table");
    require_shape(v, what, right);
  }
  void require_document_start(ValueId v, const Tensor& sequences) const {
    if (v == kNoValue) return;
    value(v, "document_start", DType::kI32);
    require_shape(v, "document_start", {sequences.shape[0], sequences.shape[1]});
  }
  template <typename A>
  void require_sense(const A& attribute) const {
    if (attribute.makes_sense()) return;
    std::string given;
    attribute.fields([&given](const char* field, const auto& number) {
      given += (given.empty() ? "" : ", ") + std::string(field) + " " + std::to_string(number);
    });
    require(false, "is given " + given + "; see " + A::kName + "Attribute in lib/attributes.h for what makes sense");
  }
  void require_window(const Tensor& in, const WindowAttribute& window) const {
    require_sense(window);
    const WindowSide rows = window.rows(), columns = window.columns();
    const uint64_t fits_h = uint64_t{in.shape[1]} + rows.pad + rows.far_pad,
                   fits_w = uint64_t{in.shape[2]} + columns.pad + columns.far_pad;
    const auto size_text = [](uint64_t h, uint64_t w) { return std::to_string(h) + " x " + std::to_string(w); };
    require(rows.extent() <= fits_h && columns.extent() <= fits_w,
            "its window of " + size_text(rows.extent(), columns.extent()) +
                " is larger than its padded input; must be at most " + size_text(fits_h, fits_w));
  }
  // Requires a window that a pool can use: one group, and no window that is all padding.
  void require_pool(const Tensor& in, const WindowAttribute& window) const {
    require_window(in, window);
    require(window.groups == 1,
            "has " + std::to_string(window.groups) + " groups; a pool takes each channel by itself, and has 1");
    const auto meets = [](const WindowSide& side, uint32_t size) {
      return side.always_meets(size, side.outputs(size));
    };
    require(meets(window.rows(), in.shape[1]) && meets(window.columns(), in.shape[2]),
            "is padded by " + std::to_string(window.pad_top) + ", " + std::to_string(window.pad_left) + ", " +
                std::to_string(window.pad_bottom) + " and " + std::to_string(window.pad_right) +
                " (top, left, bottom, right); must be by less than its window's height and width, so that " +
                "no window lies in the padding alone");
  }

 private:
  // Returns a description, for example "conv1 [2,8,8,16] of f32".
  std::string text(ValueId v) const {
    const Tensor& tensor = graph_.tensor(v);
    return graph_.values[v].name + " " + shape_text(shape_of(tensor)) + " of " + dtype_info(tensor.dtype).name;
  }

  const Graph& graph_;
  const Op op_;
  const std::string name_;
};

}  // namespace

namespace {

// Returns [N,P,Q,channels], the output shape of a window over [N,H,W,C].
Shape shape_under(const Tensor& in, const WindowAttribute& window, uint32_t channels) {
  const auto outputs = [](const WindowSide& side, uint32_t size) { return static_cast<uint32_t>(side.outputs(size)); };
  return {in.shape[0], outputs(window.rows(), in.shape[1]), outputs(window.columns(), in.shape[2]), channels};
}

// Returns the bound of the uniform distribution of PyTorch's Conv2d: 1/sqrt(fan in).
float reach_under(const Tensor& in, const WindowAttribute& window) {
  const float fan_in = static_cast<float>(in.shape[3]) / static_cast<float>(window.groups) *
                       static_cast<float>(uint32_t{window.kernel_h} * window.kernel_w);
  return 1.0f / std::sqrt(fan_in);
}

}  // namespace

Graph::Graph(DType stored) : stored_(stored) {
  scalars = add_value("scalars", ValueKind::kScalars, {static_cast<uint32_t>(sizeof(StepScalars))}, DType::kU8);
}

ValueId Graph::add_value(const std::string& name, ValueKind kind, const Shape& shape) {
  const bool is_activation =
      kind == ValueKind::kInput || kind == ValueKind::kActivation || kind == ValueKind::kGradient;
  return add_value(name, kind, shape, is_activation ? stored_ : DType::kF32);
}

ValueId Graph::add_value(const std::string& name, ValueKind kind, const Shape& shape, DType dtype) {
  const auto refuse = [&](const std::string& otherwise) {
    throw UserError(name + ": a tensor of " + shape_text(shape) + "; " + otherwise);
  };
  if (shape.size() > kMaxRank) refuse("must have at most four dimensions");
  if (name.find('\0') != std::string::npos)
    refuse("its name must not hold a NUL character, with which a plan's names end");
  double elements = 1;
  for (const uint32_t d : shape) elements *= d;
  if (elements == 0) refuse("must have no dimension of 0");
  if (elements > kMaxElements) refuse("must have at most 2^40 elements");
  const bool is_state = kind == ValueKind::kParameter || kind == ValueKind::kBuffer || kind == ValueKind::kTable;
  if (is_state && !state_names_.insert(name).second)
    throw UserError(name + ": a second tensor of that name; each parameter, buffer and table must have its own");
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

// Adds the value under its name in files. Throws UserError if its form in files has another number
// of elements.
ValueId Graph::add_stored(const std::string& name, ValueKind kind, const Shape& shape) {
  const auto entry = stored_as_.find(name);
  if (entry == stored_as_.end()) return add_value(name, kind, shape);
  const auto& [as, given] = entry->second;
  const ValueId v = add_value(as, kind, shape);
  StoredForm form = given;
  form.own = stored_shape(tensor(v));
  if (form.shape.empty() && form.sides.empty()) form.shape = form.own;  // with `sides`, an empty shape means a scalar
  if (as != name) form.before = {name};
  const auto count = [](const std::vector<uint64_t>& sides) {
    double elements = 1;
    for (const uint64_t side : sides) elements *= static_cast<double>(side);
    return elements;
  };
  std::vector<uint64_t> places = form.order;
  std::sort(places.begin(), places.end());
  bool is_order =
      form.order.size() == form.sides.size() && (form.sides.empty() || count(form.sides) == count(form.own));
  for (size_t n = 0; n < places.size(); ++n) is_order = is_order && places[n] == n;
  if (!is_order || count(form.shape) != count(form.own))
    throw UserError("stored." + name + ": is of " + shape_text(shape) +
                    ", which its \"shape\", or \"sides\" in their \"order\", do not hold");
  forms_.emplace(as, std::move(form));
  return v;
}

void Graph::require_stored() const {
  for (const auto& [name, entry] : stored_as_) {
    if (forms_.count(entry.first) == 0)
      throw UserError("stored." + name + ": is no parameter of a node that is not tied");
  }
}

ValueId Graph::named(const std::string& called, ValueKind kind) const {
  const auto stored = stored_as_.find(called);
  const std::string& name = stored == stored_as_.end() ? called : stored->second.first;
  const auto is_it = [&](const Value& value) { return value.kind == kind && value.name == name; };
  const auto found = std::find_if(values.begin(), values.end(), is_it);
  return found == values.end() ? kNoValue : static_cast<ValueId>(found - values.begin());
}

ValueId Graph::tied(const std::string& name, ValueKind kind, const Shape& shape) {
  const auto entry = tied_.find(name);
  if (entry == tied_.end()) return kNoValue;
  const ValueId other = named(entry->second, kind);
  const auto refuse = [&](const std::string& why) {
    throw UserError(name + ": is tied to \"" + entry->second + "\", " + why);
  };
  if (other == kNoValue) refuse("which no node before it has");
  const Shape is = shape_of(tensor(other));
  if (is != shape) refuse("which is of " + shape_text(is) + "; must be of " + shape_text(shape));
  used_ties_.insert(name);
  return other;
}

void Graph::require_tied() const {
  for (const auto& [name, other] : tied_) {
    if (used_ties_.count(name) == 0)
      throw UserError(name + ": is tied to \"" + other + "\", and is no parameter of a node");
  }
}

ValueId Graph::buffer(const std::string& name, const Shape& shape, float constant) {
  if (const ValueId other = tied(name, ValueKind::kBuffer, shape); other != kNoValue) return other;
  const ValueId v = add_stored(name, ValueKind::kBuffer, shape);
  values[v].init_scale = constant;
  return v;
}

ValueId Graph::parameter(const std::string& name, const Shape& shape, InitKind init, float scale) {
  if (const ValueId other = tied(name, ValueKind::kParameter, shape); other != kNoValue) return other;
  const ValueId v = add_stored(name, ValueKind::kParameter, shape);
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

// Returns the value that a node reads for its input v. If v comes from learned() or learned_rows(),
// appends a node for this reader, with an output of its own.
ValueId Graph::read(ValueId v) {
  const auto leaf = leaves_.find(v);
  if (leaf == leaves_.end()) return v;
  const bool is_first = leaf->second.outputs.empty();
  leaf->second.outputs = {is_first ? v : add_value(values[v].name, ValueKind::kActivation, shape_of(tensor(v)))};
  nodes.push_back(leaf->second);
  return nodes.back().outputs[0];
}

Node& Graph::node(Op op, const std::string& name, std::vector<ValueId> inputs) {
  for (ValueId& v : inputs) v = read(v);
  Node n;
  n.op = op;
  n.name = name;
  n.inputs = std::move(inputs);
  nodes.push_back(std::move(n));
  return nodes.back();
}

AdapterForm Graph::adapter_of(const std::string& layer) const {
  const AdapterForm form = adapters ? adapters(layer) : AdapterForm();
  const std::string weight = layer + ".weight";
  const bool is_shared = std::any_of(tied_.begin(), tied_.end(),
                                     [&](const auto& pair) { return pair.first == weight || pair.second == weight; });
  if (form.rank == 0 || !is_shared) return form;
  if (form.is_named)
    throw UserError(layer +
                    ": shares its weight with another layer; an adapter must be of a layer with a weight of its own");
  return {};
}

ValueId Graph::conv(ValueId x, const std::string& name, uint32_t out_channels, WindowAttribute window, bool bias) {
  // Without a bias as in torchvision: kaiming_normal_(mode="fan_out", nonlinearity="relu").
  const float fan_out = static_cast<float>(out_channels) * window.kernel_h * window.kernel_w;
  const Draw drawn = bias ? Draw{InitKind::kUniform, reach_under(tensor(x), window)}
                          : Draw{InitKind::kNormal, std::sqrt(2.0f / fan_out)};
  const ValueId y = plain_conv(x, name, out_channels, window, bias, drawn);
  const AdapterForm form = adapter_of(name);
  const bool is_point = window.kernel_h == 1 && window.kernel_w == 1;
  return form.rank == 0 || window.groups > 1 || !(is_point || form.is_named) ? y
                                                                             : adapted_conv(x, y, name, window, form);
}

ValueId Graph::plain_conv(ValueId x, const std::string& name, uint32_t out_channels, WindowAttribute window, bool bias,
                          Draw drawn) {
  const NodeRules rules(*this, Op::kConv, name);
  const Tensor in = rules.image(x);
  rules.require_window(in, window);
  rules.require(out_channels > 0, "has 0 output channels; must have at least one");
  const uint32_t channels = in.shape[3], groups = window.groups;
  rules.require(channels % groups == 0 && out_channels % groups == 0,
                "has " + std::to_string(groups) + " groups; they must divide the " + std::to_string(channels) +
                    " channels of x and the " + std::to_string(out_channels) + " output channels");
  const ValueId weight =
      parameter(name + ".weight", {out_channels, window.kernel_h, window.kernel_w, channels / groups}, drawn.kind,
                drawn.scale);
  const ValueId b =
      bias ? parameter(name + ".bias", {out_channels}, InitKind::kUniform, reach_under(in, window)) : kNoValue;
  const ValueId y = add_value(name, ValueKind::kActivation, shape_under(in, window, out_channels));
  Node& n = node(Op::kConv, name, {x});
  n.attribute = attributes.intern(window);
  n.outputs = {y};
  n.parameters = {weight, b};
  return y;
}

ValueId Graph::adapted_conv(ValueId x, ValueId y, const std::string& name, WindowAttribute window,
                            const AdapterForm& form) {
  NodeRules(*this, Op::kConv, name)
      .require(!form.dora, "has no DoRA, which is for linear layers; name those alone in lora.targets");
  const ValueId read = form.dropout > 0 ? dropout(x, name + ".lora_dropout", form.dropout) : x;
  const ValueId down = plain_conv(read, name + ".lora_A", form.rank, window, false,
                                  {InitKind::kUniform, reach_under(tensor(x), window)});
  const UnaryAttribute scale = {static_cast<uint32_t>(UnaryFunction::kScale), form.scale};
  const ValueId scaled = form.scale == 1 ? down : unary(down, name + ".lora_scale", scale);
  const ValueId up = plain_conv(scaled, name + ".lora_B", tensor(y).shape[3], WindowAttribute{1, 1, 1, 0}, false,
                                {InitKind::kConstant, 0.0f});
  return add(y, up, name + ".adapted");
}

ValueId Graph::conv_transpose(ValueId x, const std::string& name, uint32_t out_channels, WindowAttribute window,
                              uint32_t more_h, uint32_t more_w, bool bias) {
  const NodeRules rules(*this, Op::kConvTranspose, name);
  const Tensor in = rules.image(x);
  rules.require_sense(window);
  const uint32_t channels = in.shape[3], groups = window.groups;
  rules.require(out_channels > 0, "has 0 output channels; must have at least one");
  rules.require(channels % groups == 0 && out_channels % groups == 0,
                "has " + std::to_string(groups) + " groups; they must divide the " + std::to_string(channels) +
                    " channels of x and the " + std::to_string(out_channels) + " output channels");
  const auto size_of = [&](const WindowSide& side, uint32_t places, uint32_t more) {
    const int64_t size = (int64_t{places} - 1) * side.stride + side.extent() + more - side.pad - side.far_pad;
    rules.require(size > 0 && size <= 0xffffffff,
                  "would write " + std::to_string(size) +
                      " rows or columns; must be padded by less than its windows cover");
    rules.require(side.outputs(static_cast<uint64_t>(size)) == places,
                  "writes " + std::to_string(more) + " more rows or columns; must be fewer than its stride of " +
                      std::to_string(side.stride));
    return static_cast<uint32_t>(size);
  };
  const Shape out = {in.shape[0], size_of(window.rows(), in.shape[1], more_h),
                     size_of(window.columns(), in.shape[2], more_w), out_channels};
  const Shape shape = {channels, window.kernel_h, window.kernel_w, out_channels / groups};
  const float bound = 1.0f / std::sqrt(static_cast<float>(uint32_t{window.kernel_h} * window.kernel_w) *
                                       static_cast<float>(out_channels / groups));
  const ValueId weight = parameter(name + ".weight", shape, InitKind::kUniform, bound);
  const ValueId b = bias ? parameter(name + ".bias", {out_channels}, InitKind::kUniform, bound) : kNoValue;
  const ValueId y = add_value(name, ValueKind::kActivation, out);
  Node& n = node(Op::kConvTranspose, name, {x});
  n.attribute = attributes.intern(window);
  n.outputs = {y};
  n.parameters = {weight, b};
  return y;
}

ValueId Graph::norm_vector(const std::string& name, uint32_t channels, float number, bool is_parameter) {
  return is_parameter ? parameter(name, {channels}, InitKind::kConstant, number)
                      : table(name, std::vector<float>(channels, number));
}

ValueId Graph::batch_norm(ValueId x, const std::string& name, float epsilon, float momentum, bool affine,
                          NormStatistics statistics) {
  if (affine && statistics == NormStatistics::kRunning) return running_norm(x, name, epsilon, momentum);
  return plain_batch_norm(x, name, name, epsilon, momentum, affine, statistics);
}

ValueId Graph::plain_batch_norm(ValueId x, const std::string& layer, const std::string& name, float epsilon,
                                float momentum, bool affine, NormStatistics statistics) {
  const NodeRules rules(*this, Op::kBatchNorm, name);
  const Tensor in = rules.image(x);
  const uint32_t channels = in.shape[3];
  const NormAttribute norm = {epsilon, momentum, in.elements() / channels};
  rules.require_sense(norm);
  const ValueId gamma = norm_vector(name + ".weight", channels, 1, affine),
                beta = norm_vector(name + ".bias", channels, 0, affine);
  values[gamma].trainable = true;
  const ValueId running_mean = buffer(layer + ".running_mean", {channels}, 0.0f);
  const ValueId running_var = buffer(layer + ".running_var", {channels}, 1.0f);
  const ValueId batches = add_value(layer + ".num_batches_tracked", ValueKind::kBuffer, {}, DType::kI64);
  const ValueId y = add_value(name, ValueKind::kActivation, {in.shape[0], in.shape[1], in.shape[2], channels});
  const ValueId mean = add_value(name + ".mean", ValueKind::kSmall, {channels});
  const ValueId rstd = add_value(name + ".rstd", ValueKind::kSmall, {channels});
  Node& n = node(Op::kBatchNorm, name, {x});
  n.attribute = attributes.intern(norm);
  n.outputs = {y, mean, rstd};
  n.parameters = {gamma, beta};
  n.buffers = {running_mean, running_var, batches};
  n.statistics = statistics;
  return y;
}

bool uses_running_statistics(const Graph& graph, const Node& batch_norm) {
  if (batch_norm.statistics != NormStatistics::kByWeight) return batch_norm.statistics == NormStatistics::kRunning;
  return !graph.values[batch_norm.parameters[0]].trainable;
}

void leave_unreached(Graph& graph) {
  std::vector<bool> reached(graph.values.size(), false);
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    const bool is_reached =
        is_loss(node.op) || (node.op != Op::kCopy && std::any_of(node.outputs.begin(), node.outputs.end(),
                                                                 [&](ValueId v) { return reached[v]; }));
    if (!is_reached) continue;
    for (const auto* values : {&node.inputs, &node.parameters}) {
      for (const ValueId v : *values) {
        if (v != kNoValue) reached[v] = true;
      }
    }
  }
  for (Node& node : graph.nodes) {
    const bool is_kept =
        node.op == Op::kBatchNorm && !reached[node.parameters[0]] && !uses_running_statistics(graph, node);
    if (is_kept) node.statistics = NormStatistics::kOfBatch;
  }
  for (ValueId v = 0; v < graph.values.size(); ++v) {
    Value& value = graph.values[v];
    if (value.kind == ValueKind::kParameter && !reached[v]) value.trainable = false;
  }
}

// Appends the norm without parameters, a multiplication and an addition. The norm's buffers have
// the names of the whole layer.
ValueId Graph::running_norm(ValueId x, const std::string& name, float epsilon, float momentum) {
  const ValueId normed =
      plain_batch_norm(x, name, name + ".normed", epsilon, momentum, false, NormStatistics::kRunning);
  const Shape channels = {tensor(normed).shape[3]};
  const ValueId gamma = learned(name + ".weight", channels, InitKind::kConstant, 1.0f);
  const ValueId scaled = multiply(normed, gamma, name + ".scaled");
  return add(scaled, learned(name + ".bias", channels, InitKind::kConstant, 0.0f), name);
}

ValueId Graph::group_norm(ValueId x, const std::string& name, uint32_t groups, float epsilon, NormParts parts) {
  const NodeRules rules(*this, Op::kGroupNorm, name);
  const Tensor in = rules.image(x);
  const NormAttribute norm = {epsilon, 0.0f, 0};
  rules.require_sense(norm);
  const uint32_t channels = in.shape[3];
  rules.require(groups > 0 && channels % groups == 0, "has " + std::to_string(groups) +
                                                          " groups; they must be 1 or more and divide the " +
                                                          std::to_string(channels) + " channels of x");
  const ValueId gamma = norm_vector(name + ".weight", channels, 1, parts.weight),
                beta = norm_vector(name + ".bias", channels, 0, parts.bias);
  const ValueId y = add_value(name, ValueKind::kActivation, shape_of(in));
  const ValueId mean = add_value(name + ".mean", ValueKind::kSmall, {in.shape[0], groups});
  const ValueId rstd = add_value(name + ".rstd", ValueKind::kSmall, {in.shape[0], groups});
  Node& n = node(Op::kGroupNorm, name, {x});
  n.attribute = attributes.intern(norm);
  n.outputs = {y, mean, rstd};
  n.parameters = {gamma, beta};
  return y;
}

ValueId Graph::relu(ValueId x, const std::string& name) {
  const Tensor in = NodeRules(*this, Op::kRelu, name).activation(x, "x");
  const ValueId y = add_value(name, ValueKind::kActivation, shape_of(in));
  node(Op::kRelu, name, {x}).outputs = {y};
  return y;
}

ValueId Graph::detach(ValueId x, const std::string& name) {
  const Tensor in = NodeRules(*this, Op::kCopy, name).activation(x, "x");
  const ValueId y = add_value(name, ValueKind::kActivation, shape_of(in));
  node(Op::kCopy, name, {x}).outputs = {y};
  return y;
}

ValueId Graph::add(ValueId a, ValueId b, const std::string& name) {
  const bool alike = a < values.size() && b < values.size() && same_shape(tensor(a), tensor(b));
  return broadcast(alike ? Op::kAdd : Op::kBroadcastAdd, a, b, name);
}
ValueId Graph::multiply(ValueId a, ValueId b, const std::string& name) { return broadcast(Op::kMultiply, a, b, name); }

// Appends a node that adds or multiplies with broadcasting. The node's first input must have the
// shape of the output. So the inputs are exchanged if only the second has this shape, which changes
// neither sum nor product.
ValueId Graph::broadcast(Op op, ValueId a, ValueId b, const std::string& name) {
  const NodeRules rules(*this, op == Op::kBroadcastAdd ? Op::kAdd : op, name);
  const Tensor first = rules.activation(a, "a"), second = rules.activation(b, "b");
  const bool swapped = !contract::is_broadcast(first, second) && contract::is_broadcast(second, first);
  if (!swapped) rules.require_broadcast(b, "b", first);
  if (a == b) b = again(b, name + ".again");
  const ValueId y = add_value(name, ValueKind::kActivation, shape_of(swapped ? second : first));
  node(op, name, swapped ? std::vector{b, a} : std::vector{a, b}).outputs = {y};
  return y;
}

ValueId Graph::again(ValueId v, const std::string& name) {
  const Shape whole = shape_of(tensor(v));
  return slice(v, name, Shape(whole.size(), 0), whole);
}

ValueId Graph::softmax(ValueId x, const std::string& name) {
  const Tensor in = NodeRules(*this, Op::kSoftmax, name).rows(x, "x");
  const ValueId y = add_value(name, ValueKind::kActivation, shape_of(in));
  node(Op::kSoftmax, name, {x}).outputs = {y};
  return y;
}

ValueId Graph::product(ValueId a, ValueId b, const std::string& name, ProductAttribute how) {
  const NodeRules rules(*this, Op::kProduct, name);
  const char* const kForm = "matrices, [...,M,N]";
  const Shape first = shape_of(rules.activation(a, "a", 2, kMaxRank, kForm)),
              second = shape_of(rules.activation(b, "b", 2, kMaxRank, kForm));
  rules.require_sense(how);
  const auto side = [](const Shape& shape, bool last) { return shape[shape.size() - (last ? 1 : 2)]; };
  const uint32_t K = side(first, how.transposed_a == 0), N = side(second, how.transposed_b == 0);
  Shape right(first.begin(), first.end() - 2);
  right.push_back(how.transposed_b == 0 ? K : N);
  right.push_back(how.transposed_b == 0 ? N : K);
  rules.require_shape(b, "b", right);
  if (a == b) b = again(b, name + ".again");
  Shape shape(first.begin(), first.end() - 2);
  shape.push_back(side(first, how.transposed_a != 0));
  shape.push_back(N);
  const ValueId c = add_value(name, ValueKind::kActivation, shape);
  Node& n = node(Op::kProduct, name, {a, b});
  n.attribute = attributes.intern(how);
  n.outputs = {c};
  return c;
}

ValueId Graph::learned(const std::string& name, const Shape& shape, InitKind init, float scale) {
  const NodeRules rules(*this, Op::kLearned, name);
  rules.require(!shape.empty(), "has no dimension; must have one at least");
  rules.require(init != InitKind::kTable, "begins as a table's numbers; must be constant or drawn");
  const ValueId w = parameter(name, shape, init, scale);
  const ValueId y = add_value(name, ValueKind::kActivation, shape);
  Node leaf;
  leaf.op = Op::kLearned;
  leaf.name = name;
  leaf.parameters = {w};
  leaves_[y] = leaf;
  return y;
}

ValueId Graph::learned_rows(const std::string& name, const Shape& shape, std::vector<float> rows, InitKind init,
                            float scale) {
  const NodeRules rules(*this, Op::kLearnedRows, name);
  rules.require(shape.size() == 2, "is " + shape_text(shape) + "; must be [rows,columns]");
  rules.require(!rows.empty(), "names no row; must name one at least");
  for (const float row : rows) {
    rules.require(named_row(row, shape[0]) < shape[0] && row == std::floor(row),
                  "names row " + std::to_string(row) + " of " + std::to_string(shape[0]));
  }
  const ValueId w = parameter(name, shape, init, scale);
  const ValueId y = add_value(name, ValueKind::kActivation, {static_cast<uint32_t>(rows.size()), shape[1]});
  Node leaf;
  leaf.op = Op::kLearnedRows;
  leaf.name = name;
  leaf.parameters = {w, table(name + ".rows", std::move(rows))};
  leaves_[y] = leaf;
  return y;
}

ValueId Graph::max_pool(ValueId x, const std::string& name, WindowAttribute window) {
  const NodeRules rules(*this, Op::kMaxPool, name);
  const Tensor in = rules.image(x);
  rules.require_pool(in, window);
  rules.require(uint32_t{window.kernel_h} * window.kernel_w <= 256,
                "its window has " + std::to_string(uint32_t{window.kernel_h} * window.kernel_w) +
                    " places; must have at most 256, which a byte can number");
  const Shape shape = shape_under(in, window, in.shape[3]);
  const ValueId y = add_value(name, ValueKind::kActivation, shape);
  const ValueId index = add_value(name + ".index", ValueKind::kActivation, shape, DType::kU8);
  Node& n = node(Op::kMaxPool, name, {x});
  n.attribute = attributes.intern(window);
  n.outputs = {y, index};
  return y;
}

ValueId Graph::avg_pool(ValueId x, const std::string& name, WindowAttribute window) {
  const NodeRules rules(*this, Op::kAvgPool, name);
  const Tensor in = rules.image(x);
  rules.require_pool(in, window);
  const ValueId y = add_value(name, ValueKind::kActivation, shape_under(in, window, in.shape[3]));
  Node& n = node(Op::kAvgPool, name, {x});
  n.attribute = attributes.intern(window);
  n.outputs = {y};
  return y;
}

ValueId Graph::global_pool(ValueId x, const std::string& name, ValueId document_start) {
  const NodeRules rules(*this, Op::kGlobalPool, name);
  const Tensor in = rules.activation(x, "x", 3, 4, "images, [N,H,W,C], or sequences, [N,T,C]");
  rules.require(document_start == kNoValue || in.rank == 3, "pools documents of images; x must be sequences, [N,T,C]");
  rules.require_document_start(document_start, in);
  const ValueId y = add_value(name, ValueKind::kActivation, {in.shape[0], static_cast<uint32_t>(in.last_dimension())});
  Node& n = node(Op::kGlobalPool, name, {x});
  if (document_start != kNoValue) n.inputs.push_back(document_start);
  n.outputs = {y};
  return y;
}

ValueId Graph::linear(ValueId x, const std::string& name, uint32_t out_features, bool input_major, bool bias,
                      float init_std) {
  const AdapterForm form = adapter_of(name);
  if (form.rank == 0) return linear(x, name, out_features, input_major, bias, init_std, kNoValue, kNoValue);
  const ValueId read = form.dropout > 0 ? dropout(x, name + ".lora_dropout", form.dropout) : x;
  const ValueId hidden = low_rank(read, name, form.rank, form.scale);
  const ValueId up = parameter(name + ".lora_B.weight", {out_features, form.rank}, InitKind::kConstant, 0.0f);
  if (!form.dora) return linear(x, name, out_features, input_major, bias, init_std, hidden, up);
  return dora(linear(x, name, out_features, input_major, false, init_std, hidden, up), name, bias);
}

ValueId Graph::linear(ValueId x, const std::string& name, uint32_t out_features, bool input_major, bool bias,
                      float init_std, ValueId hidden, ValueId up) {
  const NodeRules rules(*this, Op::kLinear, name);
  const Tensor in = rules.rows(x, "x");
  rules.require(out_features > 0, "has 0 output features; must have at least one");
  rules.require((hidden == kNoValue) == (up == kNoValue),
                "has half an adapter; give both its hidden values and its matrix, or neither");
  const size_t adapter = hidden == kNoValue ? kNoNode : writer_of(hidden);
  if (hidden != kNoValue) {
    const Tensor h = rules.rows(hidden, "hidden");
    rules.require(adapter != kNoNode && nodes[adapter].op == Op::kLinear,
                  "hidden is " + values[hidden].name + "; must be what low_rank() wrote");
    rules.require(h.leading_elements() == in.leading_elements(), "hidden has " + std::to_string(h.leading_elements()) +
                                                                     " rows; must have the " +
                                                                     std::to_string(in.leading_elements()) + " of x");
    rules.require_table(up, "up", {out_features, static_cast<uint32_t>(h.last_dimension())});
  }
  const uint32_t channels = static_cast<uint32_t>(in.last_dimension());
  const Shape weight_shape = input_major ? Shape{channels, out_features} : Shape{out_features, channels};
  const ValueId weight = parameter(name + ".weight", weight_shape, InitKind::kNormal, init_std);
  const ValueId b = bias ? parameter(name + ".bias", {out_features}, InitKind::kConstant, 0.0f) : kNoValue;
  Shape shape = shape_of(in);
  shape.back() = out_features;
  const ValueId y = add_value(name, ValueKind::kActivation, shape);
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
  const NodeRules rules(*this, Op::kLinear, name + ".lora_A");
  const Tensor in = rules.rows(x, "x");
  const LinearAttribute linear = {0, scale};
  rules.require_sense(linear);
  rules.require(rank > 0, "has rank 0; must have at least 1");
  const uint32_t channels = static_cast<uint32_t>(in.last_dimension());
  const ValueId down = parameter(name + ".lora_A.weight", {rank, channels}, InitKind::kUniform,
                                 1.0f / std::sqrt(static_cast<float>(channels)));
  Shape shape = shape_of(in);
  shape.back() = rank;
  const ValueId h = add_value(name + ".lora_A", ValueKind::kActivation, shape);
  Node& n = node(Op::kLinear, name + ".lora_A", {x});
  n.attribute = attributes.intern(linear);
  n.outputs = {h};
  n.parameters = {down, kNoValue};
  return h;
}

ValueId Graph::dora(ValueId z, const std::string& name, bool bias) {
  const NodeRules rules(*this, Op::kDora, name + ".dora");
  const Tensor in = rules.rows(z, "z");
  const size_t writer = writer_of(z);
  rules.require(writer != kNoNode && nodes[writer].low_rank != kNoNode && nodes[writer].parameters[1] == kNoValue,
                "z is " + values[z].name + "; must be what a linear layer with an adapter and without a bias wrote");
  const Node layer = nodes[writer], low = nodes[layer.low_rank];
  const auto attribute_of = [this](const Node& n) { return attributes.of<LinearAttribute>()[n.attribute]; };
  const LinearAttribute adapted = {attribute_of(layer).input_major, attribute_of(low).scale};
  const uint32_t channels = static_cast<uint32_t>(in.last_dimension());
  const ValueId magnitudes = parameter(name + kMagnitude, {channels}, InitKind::kConstant, 1.0f);
  const ValueId b = bias ? parameter(name + ".bias", {channels}, InitKind::kConstant, 0.0f) : kNoValue;
  const ValueId y = add_value(name + ".dora", ValueKind::kActivation, shape_of(in));
  const ValueId norms = add_value(name + ".norms", ValueKind::kSmall, {channels});
  Node& n = node(Op::kDora, name + ".dora", {z});
  n.attribute = attributes.intern(adapted);
  n.outputs = {y, norms};
  n.parameters = {magnitudes, b, layer.parameters[0], low.parameters[0], layer.parameters[2]};
  return y;
}

ValueId Graph::layer_norm(ValueId x, const std::string& name, float epsilon, NormParts parts) {
  const NodeRules rules(*this, Op::kLayerNorm, name);
  const Tensor in = rules.rows(x, "x");
  const NormAttribute norm = {epsilon, 0.0f, 0};
  rules.require_sense(norm);
  const uint32_t channels = static_cast<uint32_t>(in.last_dimension());
  const ValueId gamma = norm_vector(name + ".weight", channels, 1, parts.weight),
                beta = norm_vector(name + ".bias", channels, 0, parts.bias);
  Shape rows = shape_of(in);
  rows.pop_back();
  const ValueId y = add_value(name, ValueKind::kActivation, shape_of(in));
  const ValueId mean = add_value(name + ".mean", ValueKind::kSmall, rows);
  const ValueId rstd = add_value(name + ".rstd", ValueKind::kSmall, rows);
  Node& n = node(Op::kLayerNorm, name, {x});
  n.attribute = attributes.intern(norm);
  n.outputs = {y, mean, rstd};
  n.parameters = {gamma, beta};
  return y;
}

ValueId Graph::rms_norm(ValueId x, const std::string& name, float epsilon, uint32_t columns, float offset,
                        bool weight) {
  const NodeRules rules(*this, Op::kRmsNorm, name);
  const Tensor in = rules.rows(x, "x");
  const NormAttribute norm = {epsilon, 0.0f, 0, offset};
  rules.require_sense(norm);
  const uint32_t all = static_cast<uint32_t>(in.last_dimension()), own = columns == 0 ? all : columns;
  rules.require(all % own == 0, "normalises " + std::to_string(own) + " columns; they must divide the " +
                                    std::to_string(all) + " of x");
  const ValueId gamma = norm_vector(name + ".weight", own, 1.0f - offset, weight);
  Shape rows = shape_of(in);
  rows.pop_back();
  if (own != all) rows.push_back(all / own);
  const ValueId y = add_value(name, ValueKind::kActivation, shape_of(in));
  const ValueId rstd = add_value(name + ".rstd", ValueKind::kSmall, rows);
  Node& n = node(Op::kRmsNorm, name, {x});
  n.attribute = attributes.intern(norm);
  n.outputs = {y, rstd};
  n.parameters = {gamma};
  return y;
}

ValueId Graph::gelu(ValueId x, const std::string& name, bool tanh_form) {
  const Tensor in = NodeRules(*this, Op::kGelu, name).activation(x, "x");
  const ValueId y = add_value(name, ValueKind::kActivation, shape_of(in));
  Node& n = node(Op::kGelu, name, {x});
  n.attribute = attributes.intern(GeluAttribute{tanh_form ? 1u : 0u});
  n.outputs = {y};
  return y;
}

ValueId Graph::unary(ValueId x, const std::string& name, UnaryAttribute unary) {
  const NodeRules rules(*this, Op::kUnary, name);
  const Tensor in = rules.activation(x, "x");
  rules.require_sense(unary);
  const ValueId y = add_value(name, ValueKind::kActivation, shape_of(in));
  Node& n = node(Op::kUnary, name, {x});
  n.attribute = attributes.intern(unary);
  n.outputs = {y};
  return y;
}

ValueId Graph::swiglu(ValueId gate, ValueId up, const std::string& name) { return gated(Op::kSwiglu, gate, up, name); }
ValueId Graph::geglu(ValueId gate, ValueId up, const std::string& name) { return gated(Op::kGeglu, gate, up, name); }

ValueId Graph::gated(Op op, ValueId gate, ValueId up, const std::string& name) {
  const NodeRules rules(*this, op, name);
  const Shape shape = shape_of(rules.activation(gate, "gate"));
  rules.activation(up, "up");
  rules.require_shape(up, "up", shape);
  const ValueId y = add_value(name, ValueKind::kActivation, shape);
  node(op, name, {gate, up}).outputs = {y};
  return y;
}

ValueId Graph::columns(ValueId x, const std::string& name, uint32_t first, uint32_t count) {
  const NodeRules rules(*this, Op::kColumns, name);
  Shape shape = shape_of(rules.rows(x, "x"));
  rules.require(count > 0 && uint64_t{first} + count <= shape.back(), "takes " + std::to_string(count) +
                                                                          " columns from " + std::to_string(first) +
                                                                          " on; x has " + std::to_string(shape.back()));
  shape.back() = count;
  const ValueId y = add_value(name, ValueKind::kActivation, shape);
  Node& n = node(Op::kColumns, name, {x});
  n.attribute = attributes.intern(ColumnsAttribute{first});
  n.outputs = {y};
  return y;
}

namespace {

// Returns the attribute of a box that begins at `first`, which has one number for each dimension of
// the tensor.
ColumnsAttribute box_at(const Shape& first) {
  const auto from_behind = [&first](size_t behind) {
    return behind < first.size() ? first[first.size() - 1 - behind] : 0;
  };
  return {from_behind(0), from_behind(1), from_behind(2)};
}

}  // namespace

ValueId Graph::slice(ValueId x, const std::string& name, const Shape& first, const Shape& counts) {
  const NodeRules rules(*this, Op::kColumns, name);
  const Shape whole = shape_of(rules.activation(x, "x", 2, kMaxRank, "samples of at least one dimension, [N,...]"));
  rules.require(first.size() == whole.size() && counts.size() == whole.size(),
                "begins at " + shape_text(first) + " and takes " + shape_text(counts) +
                    "; must have a number for each dimension of x, " + shape_text(whole));
  rules.require(first[0] == 0 && counts[0] == whole[0], "takes " + std::to_string(counts[0]) + " samples from " +
                                                            std::to_string(first[0]) + " on; must take all " +
                                                            std::to_string(whole[0]) + ", dimension 0 of x");
  for (size_t d = 1; d < whole.size(); ++d) {
    rules.require(counts[d] > 0 && uint64_t{first[d]} + counts[d] <= whole[d],
                  "takes " + std::to_string(counts[d]) + " places from " + std::to_string(first[d]) +
                      " on along dimension " + std::to_string(d) + "; x has " + std::to_string(whole[d]));
  }
  const ValueId y = add_value(name, ValueKind::kActivation, counts);
  Node& n = node(Op::kColumns, name, {x});
  n.attribute = attributes.intern(box_at(first));
  n.outputs = {y};
  return y;
}

ValueId Graph::slice(ValueId x, const std::string& name, uint32_t axis, uint32_t first, uint32_t count) {
  const NodeRules rules(*this, Op::kColumns, name);
  Shape counts = shape_of(rules.activation(x, "x", 2, kMaxRank, "samples of at least one dimension, [N,...]"));
  rules.require_axis(axis, counts);
  Shape begin(counts.size(), 0);
  begin[axis] = first, counts[axis] = count;
  return slice(x, name, begin, counts);
}

ValueId Graph::pad(ValueId x, const std::string& name, const Shape& before, const Shape& behind) {
  const NodeRules rules(*this, Op::kPad, name);
  Shape shape = shape_of(rules.activation(x, "x", 2, kMaxRank, "samples of at least one dimension, [N,...]"));
  rules.require(before.size() == shape.size() && behind.size() == shape.size(),
                "is padded by " + shape_text(before) + " before and " + shape_text(behind) +
                    " behind; must have a number for each dimension of x, " + shape_text(shape));
  rules.require(before[0] == 0 && behind[0] == 0, "pads dimension 0, which counts samples; must be 0 there");
  for (size_t d = 1; d < shape.size(); ++d) {
    rules.require(uint64_t{before[d]} + behind[d] + shape[d] <= UINT32_MAX,
                  "pads dimension " + std::to_string(d) + " to more than 2^32 places");
    shape[d] += before[d] + behind[d];
  }
  const ValueId y = add_value(name, ValueKind::kActivation, shape);
  Node& n = node(Op::kPad, name, {x});
  n.attribute = attributes.intern(box_at(before));
  n.outputs = {y};
  return y;
}

ValueId Graph::concat(const std::vector<ValueId>& parts, const std::string& name, uint32_t axis) {
  const NodeRules rules(*this, Op::kConcat, name);
  rules.require(parts.size() > 1, "joins " + std::to_string(parts.size()) + " values; must join at least two");
  Shape shape =
      shape_of(rules.activation(parts[0], "part 0", 2, kMaxRank, "samples of at least one dimension, [N,...]"));
  rules.require_axis(axis, shape);
  uint64_t length = shape[axis];
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::string what = "part " + std::to_string(i);
    const Tensor part = rules.activation(parts[i], what);
    if (axis < part.rank) shape[axis] = part.shape[axis];
    rules.require_shape(parts[i], what, shape);
    length += part.shape[axis];
  }
  rules.require(length <= UINT32_MAX, "is longer than 2^32 places along dimension " + std::to_string(axis));
  std::vector<ValueId> left = parts;
  for (size_t i = 1; i < left.size(); ++i) {
    const auto before = parts.begin() + static_cast<ptrdiff_t>(i);
    if (std::find(parts.begin(), before, parts[i]) != before)
      left[i] = again(parts[i], name + ".again." + std::to_string(i));
  }
  // Joins groups of neighbours, so that each value is copied at most once per level.
  for (uint32_t joined = 0; left.size() > kMaxConcatParts; ++joined) {
    std::vector<ValueId> fewer;
    for (size_t i = 0; i < left.size(); i += kMaxConcatParts) {
      const std::vector<ValueId> some(left.begin() + static_cast<ptrdiff_t>(i),
                                      left.begin() +
                                          static_cast<ptrdiff_t>(std::min(left.size(), i + kMaxConcatParts)));
      const std::string part = name + "." + std::to_string(joined) + "." + std::to_string(fewer.size());
      fewer.push_back(some.size() == 1 ? some[0] : concat(some, part, axis));
    }
    left = fewer;
  }
  shape[axis] = static_cast<uint32_t>(length);
  const ValueId y = add_value(name, ValueKind::kActivation, shape);
  node(Op::kConcat, name, left).outputs = {y};
  return y;
}

ValueId Graph::reshape(ValueId x, const std::string& name, const Shape& shape) {
  const NodeRules rules(*this, Op::kReshape, name);
  const Tensor in = rules.activation(x, "x");
  rules.require(!shape.empty() && shape.size() <= kMaxRank,
                "becomes " + shape_text(shape) + "; must have one to four dimensions");
  double elements = 1;
  for (const uint32_t d : shape) elements *= d;
  rules.require(elements == static_cast<double>(in.elements()), "becomes " + shape_text(shape) + "; must have the " +
                                                                    std::to_string(in.elements()) + " elements of x, " +
                                                                    shape_text(shape_of(in)));
  const ValueId y = add_value(name, ValueKind::kActivation, shape);
  node(Op::kReshape, name, {x}).outputs = {y};
  return y;
}

ValueId Graph::transpose(ValueId x, const std::string& name, const std::vector<uint32_t>& axes) {
  const NodeRules rules(*this, Op::kTranspose, name);
  const Shape in = shape_of(rules.activation(x, "x", 2, kMaxRank, "samples of at least one dimension, [N,...]"));
  Shape sorted = axes, every(in.size());
  std::sort(sorted.begin(), sorted.end());
  std::iota(every.begin(), every.end(), 0u);
  rules.require(sorted == every && axes[0] == 0,
                "has the order " + shape_text(axes) +
                    "; must begin with 0, which counts samples, and have each of the " + std::to_string(in.size()) +
                    " dimensions of x once");
  Shape shape;
  for (const uint32_t axis : axes) shape.push_back(in[axis]);
  const auto axis_at = [&axes](uint32_t d) { return d < axes.size() ? axes[d] : d; };
  const ValueId y = add_value(name, ValueKind::kActivation, shape);
  Node& n = node(Op::kTranspose, name, {x});
  n.attribute = attributes.intern(TransposeAttribute{axis_at(1), axis_at(2), axis_at(3)});
  n.outputs = {y};
  return y;
}

ValueId Graph::resize(ValueId x, const std::string& name, uint32_t height, uint32_t width, ResizeKind kind) {
  const NodeRules rules(*this, Op::kResize, name);
  const Tensor in = rules.image(x);
  const ResizeAttribute resize = {static_cast<uint32_t>(kind)};
  rules.require_sense(resize);
  for (const uint32_t side : {in.shape[1], in.shape[2], height, width}) {
    rules.require(side > 0 && side <= ResizeSide::kMax,
                  "makes " + std::to_string(height) + " x " + std::to_string(width) + " of " +
                      std::to_string(in.shape[1]) + " x " + std::to_string(in.shape[2]) + "; each must be 1 to " +
                      std::to_string(ResizeSide::kMax));
  }
  const ValueId y = add_value(name, ValueKind::kActivation, {in.shape[0], height, width, in.shape[3]});
  Node& n = node(Op::kResize, name, {x});
  n.attribute = attributes.intern(resize);
  n.outputs = {y};
  return y;
}

ValueId Graph::embedding(ValueId tokens, const std::string& name, ValueId table, ValueId positions, float scale) {
  const NodeRules rules(*this, Op::kEmbedding, name);
  rules.require_sense(EmbeddingAttribute{scale});
  Shape shape = shape_of(rules.value(tokens, "tokens", DType::kI32));
  rules.require(shape.size() == 2, "tokens are " + shape_text(shape) + "; must be [B,T]");
  const Tensor rows = rules.value(table, "table", DType::kF32);
  rules.require(rows.rank == 2, "table is " + shape_text(shape_of(rows)) + "; must be [V,C]");
  const uint32_t width = rows.shape[1];
  if (positions != kNoValue) {
    const Tensor places = rules.value(positions, "positions", DType::kF32);
    rules.require(places.rank == 2 && places.shape[0] >= shape[1] && places.shape[1] == width,
                  "positions are " + shape_text(shape_of(places)) + "; must be [" + std::to_string(shape[1]) +
                      " or more," + std::to_string(width) + "]");
  }
  shape.push_back(width);
  const ValueId y = add_value(name, ValueKind::kActivation, shape);
  Node& n = node(Op::kEmbedding, name, {tokens});
  n.attribute = attributes.intern(EmbeddingAttribute{scale});
  n.outputs = {y};
  n.parameters = {table, positions};
  return y;
}

ValueId Graph::attention(ValueId qkv, const std::string& name, AttentionAttribute attention, ValueId document_start) {
  const NodeRules rules(*this, Op::kAttention, name);
  const Tensor in = rules.sequence(qkv, "qkv");
  const uint32_t heads = attention.heads, kv_heads = attention.kv_heads;
  attention.stream = next_stream_;
  rules.require(attention.causal != 0 || attention.window == 0, "has a window of " + std::to_string(attention.window) +
                                                                    " and is not causal; must be causal, or have none");
  rules.require_sense(attention);
  const uint64_t all_heads = heads + uint64_t{2} * kv_heads;
  rules.require(in.shape[2] % all_heads == 0, "qkv has " + std::to_string(in.shape[2]) +
                                                  " columns; must have as many for each of its " +
                                                  std::to_string(all_heads) + " heads of q, k and v");
  const uint32_t B = in.shape[0], T = in.shape[1], head = static_cast<uint32_t>(in.shape[2] / all_heads),
                 C = head * heads;
  rules.require(head <= kAttentionMaxHead, "has heads of " + std::to_string(head) + " columns; must be of at most " +
                                               std::to_string(kAttentionMaxHead));
  rules.require_document_start(document_start, in);
  ++next_stream_;
  const ValueId y = add_value(name, ValueKind::kActivation, {B, T, C});
  const ValueId lse = add_value(name + ".lse", ValueKind::kSmall, {B, heads, T});
  Node& n = node(Op::kAttention, name, {qkv});
  if (document_start != kNoValue) n.inputs.push_back(document_start);
  n.attribute = attributes.intern(attention);
  n.outputs = {y, lse};
  return y;
}

ValueId Graph::rope(ValueId q, ValueId k, ValueId v, const std::string& name, const RopeAttribute& rope,
                    ValueId document_start, ValueId frequencies) {
  const NodeRules rules(*this, Op::kRope, name);
  rules.require_sense(rope);
  const Tensor queries = rules.sequence(q, "q");
  rules.require(queries.shape[2] % rope.heads == 0, "q has " + std::to_string(queries.shape[2]) +
                                                        " columns; must have as many for each of its " +
                                                        std::to_string(rope.heads) + " heads");
  const uint32_t head = queries.shape[2] / rope.heads;
  rules.require(rope.rotary <= head, "turns " + std::to_string(rope.rotary) +
                                         " columns of a head; must be at most its " + std::to_string(head));
  const Shape shared = {queries.shape[0], queries.shape[1], rope.kv_heads * head};
  rules.sequence(k, "k");
  rules.sequence(v, "v");
  rules.require_shape(k, "k", shared);
  rules.require_shape(v, "v", shared);
  rules.require_document_start(document_start, queries);
  rules.require_table(frequencies, "frequencies", {rope.rotary / 2});
  if (v == q || v == k) v = again(v, name + ".again.v");
  if (k == q) k = again(k, name + ".again.k");
  Shape shape = shape_of(queries);
  shape.back() += 2 * shared.back();
  const ValueId y = add_value(name, ValueKind::kActivation, shape);
  Node& n = node(Op::kRope, name, {q, k, v});
  if (document_start != kNoValue) n.inputs.push_back(document_start);
  n.attribute = attributes.intern(rope);
  n.outputs = {y};
  n.parameters = {frequencies};
  return y;
}

ValueId Graph::dropout(ValueId x, const std::string& name, float probability) {
  return drop(x, name, probability, false);
}
ValueId Graph::drop_path(ValueId x, const std::string& name, float probability) {
  return drop(x, name, probability, true);
}

ValueId Graph::drop(ValueId x, const std::string& name, float probability, bool whole_samples) {
  const NodeRules rules(*this, Op::kDropout, name);
  const Tensor in =
      whole_samples ? rules.activation(x, "x", 1, kMaxRank, "samples, [N,...]") : rules.activation(x, "x");
  const DropoutAttribute dropout = {probability, next_stream_, whole_samples ? in.elements() / in.shape[0] : 1};
  rules.require_sense(dropout);
  ++next_stream_;
  const ValueId y = add_value(name, ValueKind::kActivation, shape_of(in));
  Node& n = node(Op::kDropout, name, {x});
  n.attribute = attributes.intern(dropout);
  n.outputs = {y};
  return y;
}

void Graph::judge_pairs(const PreferenceAttribute& how, uint32_t count) {
  const NodeRules rules(*this, Op::kPreference, "pairs");
  rules.require_sense(how);
  rules.require(pairs == kNoValue, "the graph judges pairs already");
  pairs = add_value("pairs", ValueKind::kInput, {count, JudgedPair::kNumbers}, DType::kF64);
  preference = attributes.intern(how);
}

void Graph::loss_head(ValueId x, const std::string& name, ValueId weight, ValueId bias, float softcap) {
  const NodeRules rules(*this, Op::kLossHead, name);
  rules.require_sense(CapAttribute{softcap});
  const Tensor in = rules.rows(x, "x");
  const Tensor classes = rules.value(weight, "weight", DType::kF32);
  rules.require_shape(weight, "weight", {classes.shape[0], static_cast<uint32_t>(in.last_dimension())});
  rules.require_table(bias, "bias", {classes.shape[0]});
  rules.require(labels != kNoValue, "the graph has no labels; set them before the loss head");
  const Tensor wanted = rules.value(labels, "labels", DType::kI32);
  rules.require(wanted.elements() == in.leading_elements(), "there are " + std::to_string(wanted.elements()) +
                                                                " labels; must be one for each of the " +
                                                                std::to_string(in.leading_elements()) + " rows of x");
  Node& n = node(Op::kLossHead, name, {x});
  n.attribute = attributes.intern(CapAttribute{softcap});
  n.parameters = {weight, bias};
}

template <typename Attribute>
void Graph::judge(Op op, ValueId x, const std::string& name, const Attribute& loss, ValueId weights, uint64_t count,
                  const std::vector<DType>& stored) {
  const NodeRules rules(*this, op, name);
  rules.require_sense(loss);
  rules.require_table(weights, "weights", {static_cast<uint32_t>(tensor(x).last_dimension())});
  rules.require(labels != kNoValue, "the graph has no labels; set them before the loss");
  const Tensor wanted = tensor(labels);
  rules.require(std::count(stored.begin(), stored.end(), wanted.dtype) == 1,
                std::string("the labels are ") + dtype_info(wanted.dtype).name + "; must be " +
                    dtype_info(stored[0]).name +
                    (stored.size() > 1 ? std::string(" or ") + dtype_info(stored[1]).name : ""));
  rules.require(wanted.elements() == count, "there are " + std::to_string(wanted.elements()) + " labels; must be " +
                                                std::to_string(count) + " for x, " + shape_text(shape_of(tensor(x))));
  Node& n = node(op, name, {x});
  n.attribute = attributes.intern(loss);
  n.parameters = {weights};
}

void Graph::target_loss(ValueId x, const std::string& name, const TargetLossAttribute& loss, ValueId weights) {
  const NodeRules rules(*this, Op::kTargetLoss, name);
  const Tensor in = rules.rows(x, "x");
  rules.require(weights == kNoValue || loss.kind == static_cast<uint32_t>(TargetLossKind::kBinary),
                "has weights; they are of binary labels alone");
  judge(Op::kTargetLoss, x, name, loss, weights, in.elements(), {DType::kF32});
}

void Graph::class_loss(ValueId x, const std::string& name, const ClassLossAttribute& loss, ValueId weights) {
  const NodeRules rules(*this, Op::kClassLoss, name);
  const Tensor in = rules.activation(x, "x", 2, kMaxRank, "samples of classes, [N,...,C]");
  judge(Op::kClassLoss, x, name, loss, weights, in.leading_elements(), {DType::kI32, DType::kU8});
}

void Graph::pair_loss(ValueId x, const std::string& name, const PairLossAttribute& loss) {
  const NodeRules rules(*this, Op::kPairLoss, name);
  const Tensor in = rules.activation(x, "x", 2, 2, "a vector for each input, [2B,D]");
  rules.require(in.shape[0] % 2 == 0, "x has " + std::to_string(in.shape[0]) + " rows; must have two for each pair");
  judge(Op::kPairLoss, x, name, loss, kNoValue, in.shape[0] / 2, {DType::kF32});
}

void Graph::cut(ValueId v) {
  const size_t writer = v < values.size() ? writer_of(v) : kNoNode;
  if (writer == kNoNode)
    throw UserError("a cut: " + (v < values.size() ? values[v].name : "it") +
                    " is no node's main output; cut where one is");
  boundaries.push_back(v);
}

size_t Graph::writer_of(ValueId v) const {
  const auto writes = [v](const Node& n) { return !n.outputs.empty() && n.outputs[0] == v; };
  const auto found = std::find_if(nodes.rbegin(), nodes.rend(), writes);
  return found == nodes.rend() ? kNoNode : static_cast<size_t>(nodes.rend() - found) - 1;
}

KernelCall kernel_call(const Graph& graph, const Call& call) {
  KernelCall kernel{call.op, call.pass, call.attribute, call.accumulate, {}};
  for (const ValueId v : call.arguments) kernel.tensors.push_back(v == kNoValue ? nullptr : &graph.tensor(v));
  return kernel;
}

}  // namespace reprise
