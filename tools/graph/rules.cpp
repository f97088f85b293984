// The rules of rules.h, one hand-written case per op.
// Arguments stand in the order of kOps.
#include "tools/graph/rules.h"

#include <stdexcept>

namespace reprise {

namespace {

// Batch-norm's mean, rstd, gamma and beta, as the kernels that fold it take them last.
std::vector<ValueId> with_norm(std::vector<ValueId> arguments, const Node& norm) {
  arguments.insert(arguments.end(), {norm.outputs[1], norm.outputs[2], norm.parameters[0], norm.parameters[1]});
  return arguments;
}

// Of an attention or a rope, whose other inputs come first.
ValueId document_start(const Node& n) {
  const size_t others = n.op == Op::kRope ? 3 : 1;
  return n.inputs.size() > others ? n.inputs[others] : kNoValue;
}

Call linear_call(const Node& n) {
  Call call = {n.op, Pass::kForward, n.attribute, {n.outputs[0], n.inputs[0], n.parameters[0], n.parameters[1], kNoValue, kNoValue}};
  if (n.low_rank != kNoNode) call.arguments[4] = n.inputs[1], call.arguments[5] = n.parameters[2];
  return call;
}

constexpr uint16_t kMeanAndRstd = 0b11, kRunningStatistics = 0b111;

std::vector<Call> batch_norm_calls(const Node& n) {
  const ValueId mean = n.outputs[1], rstd = n.outputs[2];
  std::vector<Call> calls;
  if (n.statistics == kNoNode) calls.push_back({n.op, Pass::kStatistics, n.attribute, {mean, rstd, n.inputs[0]}, 0, kMeanAndRstd});
  calls.push_back({n.op, Pass::kRunning, n.attribute, {n.buffers[0], n.buffers[1], n.buffers[2], mean, rstd}, 0, kRunningStatistics});
  if (n.fold == Fold::kNone) calls.push_back({n.op, Pass::kForward, n.attribute, with_norm({n.outputs[0], n.inputs[0]}, n)});
  return calls;
}

Call conv_call(const Graph& graph, const Node& n) {
  Call call = {n.op, Pass::kForward, n.attribute, {n.outputs[0], kNoValue, kNoValue, n.inputs[0], n.parameters[0]}};
  if (n.statistics != kNoNode) {
    const Node& norm = graph.nodes[n.statistics];
    call.arguments[1] = norm.outputs[1];
    call.arguments[2] = norm.outputs[2];
    call.once = kMeanAndRstd << 1;
  }
  if (n.source != kNoNode) {
    const Node& norm = graph.nodes[n.source];
    call.op = Op::kNormConv;
    call.arguments[3] = norm.inputs[0];
    call.arguments = with_norm(std::move(call.arguments), norm);
  }
  return call;
}

// A ReLU that starts from a folded addition.
Call norm_add_relu_call(const Graph& graph, const Node& n) {
  const Node& source = graph.nodes[n.source];
  const Node& norm = graph.nodes[source.source];
  return {Op::kNormAddRelu, Pass::kForward, norm.attribute, with_norm({n.outputs[0], norm.inputs[0], source.inputs[1]}, norm)};
}

}  // namespace

std::vector<Call> forward_calls(const Graph& graph, const Node& n) {
  const auto& in = n.inputs;
  const auto& out = n.outputs;
  const auto& p = n.parameters;
  if (n.op == Op::kBatchNorm) return batch_norm_calls(n);
  if (n.fold != Fold::kNone) return {};
  if (n.op == Op::kConv) return {conv_call(graph, n)};
  if (n.source != kNoNode) return {norm_add_relu_call(graph, n)};
  switch (n.op) {
    case Op::kRelu:
    case Op::kGelu:
    case Op::kGlobalPool: return {{n.op, Pass::kForward, n.attribute, {out[0], in[0]}}};
    case Op::kSwiglu:
    case Op::kAdd: return {{n.op, Pass::kForward, 0, {out[0], in[0], in[1]}}};
    case Op::kMaxPool: return {{n.op, Pass::kForward, n.attribute, {out[0], out[1], in[0]}}};
    case Op::kLinear: return {linear_call(n)};
    case Op::kLayerNorm: return {{n.op, Pass::kForward, n.attribute, {out[0], out[1], out[2], in[0], p[0], p[1]}}};
    case Op::kRmsNorm: return {{n.op, Pass::kForward, n.attribute, {out[0], out[1], in[0], p[0]}}};
    case Op::kEmbedding: return {{n.op, Pass::kForward, 0, {out[0], in[0], p[0], p[1]}}};
    case Op::kAttention: return {{n.op, Pass::kForward, n.attribute, {out[0], out[1], in[0], document_start(n), graph.scalars}}};
    case Op::kRope: return {{n.op, Pass::kForward, n.attribute, {out[0], in[0], in[1], in[2], document_start(n), p[0]}}};
    case Op::kDropout: return {{n.op, Pass::kForward, n.attribute, {out[0], in[0], graph.scalars}}};
    case Op::kLossHead: return {};  // one loop does forward and backward
    default: throw std::logic_error("op without a forward rule: " + n.name);
  }
}

std::optional<Call> repeated(const Call& call) {
  Call again = call;
  again.once = 0;
  const KernelInfo& kernel = kernel_info(call.op, call.pass);
  bool writes = false;
  for (size_t a = 0; a < call.arguments.size(); ++a) {
    if (kernel.arguments[a].role != Role::kOutput && kernel.arguments[a].role != Role::kUpdated) continue;
    if ((call.once >> a & 1) != 0) again.arguments[a] = kNoValue;
    writes = writes || again.arguments[a] != kNoValue;
  }
  return writes ? std::optional(again) : std::nullopt;
}

std::vector<Call> evaluation_calls(Graph& graph) {
  std::vector<Call> calls;
  std::map<ValueId, ValueId> same;  // dropout is the identity here: its output is its input
  const auto resolve = [&same](ValueId v) { return same.count(v) != 0 ? same.at(v) : v; };
  for (Node n : graph.nodes) {
    n.fold = Fold::kNone;  // what folds reads a batch's statistics
    n.source = n.statistics = kNoNode;
    if (n.op == Op::kDropout) {
      same[n.outputs[0]] = resolve(n.inputs[0]);
    } else if (n.op == Op::kBatchNorm) {
      calls.push_back({n.op, Pass::kInference, n.attribute,
                       {n.outputs[0], resolve(n.inputs[0]), n.buffers[0], n.buffers[1], n.parameters[0], n.parameters[1]}});
    } else if (n.op == Op::kLossHead) {
      calls.push_back({n.op, Pass::kEvaluate, 0, {graph.scalars, resolve(n.inputs[0]), n.parameters[0], n.parameters[1], graph.labels}});
    } else {
      for (Call call : forward_calls(graph, n)) {
        for (ValueId& v : call.arguments) v = resolve(v);
        if (n.op == Op::kAttention) {
          AttentionAttribute attribute = graph.attributes.of<AttentionAttribute>()[n.attribute];
          attribute.dropout = 0;
          call.attribute = graph.attributes.intern(attribute);
        }
        calls.push_back(call);
      }
    }
  }
  return calls;
}

namespace {

// attention.forward as attention.decode with caches of its own.
Call decode_call(Graph& graph, const Call& forward, uint32_t positions, std::vector<ValueId>& caches) {
  const ValueId y = forward.arguments[AttentionForward::kY], qkv = forward.arguments[AttentionForward::kQkv];
  const uint32_t shared = (graph.tensor(qkv).shape[2] - graph.tensor(y).shape[2]) / 2;
  const std::string name = graph.values[y].name;
  for (const char* part : {".keys", ".values"}) caches.push_back(graph.add_value(name + part, ValueKind::kActivation, {positions, shared}));
  return {Op::kAttention, Pass::kDecode, forward.attribute, {y, caches[caches.size() - 2], caches.back(), qkv, graph.document_start}};
}

}  // namespace

GenerationCalls generation_calls(Graph& graph, uint32_t positions) {
  GenerationCalls generation;
  const Tensor tokens = graph.tensor(graph.input);
  if (tokens.rank != 2 || tokens.shape[0] != 1) throw std::logic_error("generation is of one sequence");
  if (graph.document_start == kNoValue) {
    graph.document_start = graph.add_value("document_start", ValueKind::kInput, {1, tokens.shape[1]}, DType::kI32);
  }
  for (Call call : evaluation_calls(graph)) {
    if (call.op == Op::kAttention) call = decode_call(graph, call, positions, generation.caches);
    if (call.op == Op::kRope) call.arguments[RopeForward::kDocumentStart] = graph.document_start;
    if (call.op == Op::kLossHead) {
      using A = LossHeadEvaluate;
      const std::vector<ValueId> a = call.arguments;
      const uint32_t classes = graph.tensor(a[A::kW]).shape[0];
      generation.logits = graph.add_value("logits", ValueKind::kActivation, {1, tokens.shape[1], classes});
      call = {Op::kLinear, Pass::kForward, graph.attributes.intern(LinearAttribute{0}), {generation.logits, a[A::kX], a[A::kW], a[A::kB], kNoValue, kNoValue}};
    }
    generation.calls.push_back(call);
  }
  return generation;
}

BackwardBuilder::BackwardBuilder(Graph& graph) : graph_(graph), needs_gradient_(graph.values.size(), false) {
  for (const Node& n : graph.nodes) {
    bool needs = false;
    for (ValueId v : n.inputs) needs = needs || needs_gradient_[v];
    for (ValueId v : n.parameters) needs = needs || (v != kNoValue && graph.values[v].trainable);
    for (ValueId v : n.outputs) needs_gradient_[v] = needs;
  }
}

BackwardBuilder::Range BackwardBuilder::build(size_t first, size_t end, ValueId input, ValueId output, ValueId d_output) {
  calls_.clear();
  gradient_.clear();
  holders_.clear();
  d_output_ = d_output;
  if (d_output != kNoValue) {
    gradient_[output] = d_output;
    holders_[d_output] = 1;
  }
  for (size_t i = end; i-- > first;) {
    const Node node = graph_.nodes[i];
    if (node.op == Op::kLossHead) {
      loss(node);
      continue;
    }
    const auto found = gradient_.find(node.outputs[0]);
    if (found == gradient_.end()) continue;
    const ValueId dy = found->second;
    differentiate(node, dy);
    --holders_[dy];
    gradient_.erase(node.outputs[0]);
  }
  Range range;
  if (needs_gradient_[input]) {
    if (gradient_.at(input) == d_output_) {
      const ValueId copy = fresh_gradient(input);
      calls_.push_back({Op::kCopy, Pass::kForward, 0, {copy, d_output_}});
      gradient_[input] = copy;
    }
    range.d_input = gradient_.at(input);
  }
  range.calls = std::move(calls_);
  return range;
}

ValueId BackwardBuilder::fresh_gradient(ValueId v) {
  const Value& value = graph_.values[v];
  return graph_.add_value("d(" + value.name + ")", ValueKind::kGradient,
                          Shape(value.tensor.shape, value.tensor.shape + value.tensor.rank));
}

// Lets `call` write the gradient of v as its argument `output`; adds to what stands there already.
void BackwardBuilder::write(ValueId v, Call call, uint32_t output, bool can_accumulate) {
  const auto found = gradient_.find(v);
  if (found == gradient_.end()) {
    const ValueId g = fresh_gradient(v);
    call.arguments[output] = g;
    calls_.push_back(call);
    gradient_[v] = g;
    holders_[g] = 1;
    return;
  }
  if (found->second == d_output_ || holders_[found->second] > 1) {  // somebody else still reads it
    const ValueId own = fresh_gradient(v);
    calls_.push_back({Op::kCopy, Pass::kForward, 0, {own, found->second}});
    --holders_[found->second];
    holders_[own] = 1;
    found->second = own;
  }
  if (can_accumulate) {
    call.arguments[output] = found->second;
    call.accumulate = static_cast<uint16_t>(call.accumulate | 1u << output);
    calls_.push_back(call);
  } else {
    const ValueId part = fresh_gradient(v);
    call.arguments[output] = part;
    calls_.push_back(call);
    calls_.push_back({Op::kCopy, Pass::kForward, 0, {found->second, part}, 1});
  }
}

// Lets `call` write the gradients of several values as its outputs 0, 1, ... Each is a value of its own, then added to what stands there
// already; what nobody wants is written all the same, and dropped.
void BackwardBuilder::write_each(const std::vector<ValueId>& values, Call call) {
  for (size_t i = 0; i < values.size(); ++i) call.arguments[i] = fresh_gradient(values[i]);
  calls_.push_back(call);
  for (size_t i = 0; i < values.size(); ++i) {
    const ValueId v = values[i], part = call.arguments[i];
    if (!needs_gradient_[v]) continue;
    if (gradient_.find(v) != gradient_.end()) {
      write(v, {Op::kCopy, Pass::kForward, 0, {kNoValue, part}}, 0, true);
    } else {
      gradient_[v] = part;
      holders_[part] = 1;
    }
  }
}

// The gradient of v is (or gets added) dy itself, shared as long as nobody has to write it.
void BackwardBuilder::pass_on(ValueId v, ValueId dy) {
  if (!needs_gradient_[v]) return;
  if (gradient_.find(v) == gradient_.end()) {
    gradient_[v] = dy;
    ++holders_[dy];
  } else {
    write(v, {Op::kCopy, Pass::kForward, 0, {kNoValue, dy}}, 0, true);
  }
}

// The gradient of a parameter as argument `output` of `call`, added to where an earlier call of the step has written it;
// kNoValue for a frozen one.
ValueId BackwardBuilder::weight_gradient(ValueId parameter, Call& call, uint32_t output) {
  if (parameter == kNoValue || !graph_.values[parameter].trainable) return kNoValue;
  const auto found = weight_gradients_.find(parameter);
  if (found != weight_gradients_.end()) {
    call.accumulate = static_cast<uint16_t>(call.accumulate | 1u << output);
    return call.arguments[output] = found->second;
  }
  const Tensor tensor = graph_.tensor(parameter);
  const ValueId g = graph_.add_value("d(" + graph_.values[parameter].name + ")", ValueKind::kWeightGradient,
                                     Shape(tensor.shape, tensor.shape + tensor.rank));
  weight_gradients_[parameter] = g;
  return call.arguments[output] = g;
}

void BackwardBuilder::differentiate(const Node& n, ValueId dy) {
  const ValueId x = n.inputs[0];
  switch (n.op) {
    case Op::kConv: return convolution(n, dy);
    case Op::kLinear: return linear(n, dy);
    case Op::kBatchNorm:
    case Op::kLayerNorm: return normalisation(n, dy);
    case Op::kRelu:
      if (n.fold != Fold::kNone) return pass_on(x, dy);  // batch-norm's backward masks it
      return write(x, {n.op, Pass::kBackward, 0, {kNoValue, n.outputs[0], dy}}, 0, false);
    case Op::kSwiglu: return write_each(n.inputs, {n.op, Pass::kBackward, 0, {kNoValue, kNoValue, n.inputs[0], n.inputs[1], dy}});
    case Op::kGelu: return write(x, {n.op, Pass::kBackward, n.attribute, {kNoValue, x, dy}}, 0, false);
    case Op::kAdd:
      pass_on(n.inputs[0], dy);
      return pass_on(n.inputs[1], dy);
    case Op::kMaxPool: return write(x, {n.op, Pass::kBackward, n.attribute, {kNoValue, n.outputs[1], dy}}, 0, true);
    case Op::kGlobalPool: return write(x, {n.op, Pass::kBackward, 0, {kNoValue, dy}}, 0, true);
    case Op::kAttention:
      return write(x, {n.op, Pass::kBackward, n.attribute, {kNoValue, x, n.outputs[0], n.outputs[1], dy, document_start(n), graph_.scalars}}, 0,
                   false);
    case Op::kRope:
      return write_each({n.inputs[0], n.inputs[1], n.inputs[2]},
                        {n.op, Pass::kBackward, n.attribute, {kNoValue, kNoValue, kNoValue, dy, document_start(n), n.parameters[0]}});
    case Op::kDropout: return write(x, {n.op, Pass::kBackward, n.attribute, {kNoValue, dy, graph_.scalars}}, 0, false);
    case Op::kRmsNorm: {
      Call call = {n.op, Pass::kBackward, 0, {kNoValue, kNoValue, x, n.outputs[1], n.parameters[0], dy}};
      weight_gradient(n.parameters[0], call, 1);
      return write(x, call, 0, true);
    }
    case Op::kEmbedding: {
      Call call = {n.op, Pass::kBackward, 0, {kNoValue, kNoValue, x, dy}};
      weight_gradient(n.parameters[0], call, 0);
      weight_gradient(n.parameters[1], call, 1);
      calls_.push_back(call);
      return;
    }
    default: throw std::logic_error("op without a backward rule: " + n.name);
  }
}

// The weight's gradient first: it is the last to read x, whose room the gradient of x may then take.
void BackwardBuilder::convolution(const Node& n, ValueId dy) {
  const ValueId x = n.inputs[0];
  Call weight = {n.op, Pass::kBackwardWeight, n.attribute, {kNoValue, x, dy}};
  if (n.source != kNoNode) {
    const Node& norm = graph_.nodes[n.source];
    weight = {Op::kNormConv, Pass::kBackwardWeight, n.attribute, with_norm({kNoValue, norm.inputs[0], dy}, norm)};
  }
  if (weight_gradient(n.parameters[0], weight, 0) != kNoValue) calls_.push_back(weight);
  if (needs_gradient_[x]) write(x, {n.op, Pass::kBackwardData, n.attribute, {kNoValue, dy, n.parameters[0]}}, 0, true);
}

// As a convolution; then the gradient of the bias. A scale counts in forward alone: dy of such a layer, the first of an adapter, holds it already,
// because the second made it so.
void BackwardBuilder::linear(const Node& n, ValueId dy) {
  const ValueId x = n.inputs[0];
  const uint32_t unscaled = graph_.attributes.intern(LinearAttribute{graph_.attributes.of<LinearAttribute>()[n.attribute].input_major});
  Call weight = {n.op, Pass::kBackwardWeight, unscaled, {kNoValue, x, dy}};
  if (weight_gradient(n.parameters[0], weight, 0) != kNoValue) calls_.push_back(weight);
  Call bias = {n.op, Pass::kBackwardBias, 0, {kNoValue, dy}};
  if (weight_gradient(n.parameters[1], bias, 0) != kNoValue) calls_.push_back(bias);
  if (n.low_rank != kNoNode) adapter(n, dy);
  if (needs_gradient_[x]) write(x, {n.op, Pass::kBackwardData, unscaled, {kNoValue, dy, n.parameters[0]}}, 0, true);
}

// Of U, then of the hidden values before they were scaled.
void BackwardBuilder::adapter(const Node& n, ValueId dy) {
  const ValueId hidden = n.inputs[1], up = n.parameters[2];
  Call weight = {n.op, Pass::kBackwardWeight, graph_.attributes.intern(LinearAttribute{0}), {kNoValue, hidden, dy}};
  if (weight_gradient(up, weight, 0) != kNoValue) calls_.push_back(weight);
  const uint32_t scaled = graph_.nodes[n.low_rank].attribute;
  if (needs_gradient_[hidden]) write(hidden, {n.op, Pass::kBackwardData, scaled, {kNoValue, dy, up}}, 0, true);
}

void BackwardBuilder::normalisation(const Node& n, ValueId dy) {
  Call call = {n.op, Pass::kBackward, n.attribute,
               {kNoValue, kNoValue, kNoValue, n.inputs[0], n.outputs[1], n.outputs[2], n.parameters[0], dy}};
  if (n.fold == Fold::kIntoConv) {  // dy is the gradient of the ReLU
    call.op = Op::kNormRelu;
    call.arguments.insert(call.arguments.end() - 1, n.parameters[1]);
  }
  weight_gradient(n.parameters[0], call, 1);
  weight_gradient(n.parameters[1], call, 2);
  write(n.inputs[0], call, 0, n.op == Op::kLayerNorm);
}

void BackwardBuilder::loss(const Node& n) {
  Call call = {n.op, Pass::kBackward, 0,
               {kNoValue, kNoValue, kNoValue, graph_.scalars, n.inputs[0], n.parameters[0], n.parameters[1], graph_.labels}};
  weight_gradient(n.parameters[0], call, 1);
  weight_gradient(n.parameters[1], call, 2);
  write(n.inputs[0], call, 0, false);
}

}  // namespace reprise
