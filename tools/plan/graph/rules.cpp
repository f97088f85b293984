// Implements rules.h with one case for each op. Calls name their arguments as the kernel's family
// does.
#include "tools/plan/graph/rules.h"

#include <algorithm>
#include <set>
#include <stdexcept>

#include "tools/files/io/error.h"
#include "tools/plan/graph/call.h"

namespace reprise {

namespace {

// Returns the document starts of an attention, a pool or a rope, which follow the other inputs;
// kNoValue if there are none.
ValueId document_start(const Node& n) {
  const size_t others = n.op == Op::kRope ? 3 : 1;
  return n.inputs.size() > others ? n.inputs[others] : kNoValue;
}

Call linear_call(const Node& n) {
  using A = LinearForward;
  const bool adapts = n.low_rank != kNoNode;
  return call<A>({{A::kY, n.outputs[0]}, {A::kX, n.inputs[0]}, {A::kW, n.parameters[0]}, {A::kB, n.parameters[1]},
                  {A::kH, adapts ? n.inputs[1] : kNoValue}, {A::kU, adapts ? n.parameters[2] : kNoValue}},
                 n.attribute);
}

Call inference_call(const Node& n) {
  using A = BatchNormInference;
  return call<A>({{A::kY, n.outputs[0]},
                  {A::kX, n.inputs[0]},
                  {A::kRunningMean, n.buffers[0]},
                  {A::kRunningVar, n.buffers[1]},
                  {A::kGamma, n.parameters[0]},
                  {A::kBeta, n.parameters[1]}},
                 n.attribute);
}

std::vector<Call> batch_norm_calls(const Graph& graph, const Node& n) {
  if (uses_running_statistics(graph, n)) return {inference_call(n)};
  const ValueId x = n.inputs[0], mean = n.outputs[1], rstd = n.outputs[2];
  using S = BatchNormStatistics;
  Call statistics = call<S>({{S::kMean, mean}, {S::kRstd, rstd}, {S::kX, x}}, n.attribute);
  statistics.once = 1u << S::kMean | 1u << S::kRstd;
  using R = BatchNormRunning;
  Call running = call<R>({{R::kRunningMean, n.buffers[0]},
                          {R::kRunningVar, n.buffers[1]},
                          {R::kBatches, n.buffers[2]},
                          {R::kMean, mean},
                          {R::kRstd, rstd}},
                         n.attribute);
  running.once = 1u << R::kRunningMean | 1u << R::kRunningVar | 1u << R::kBatches;
  using A = BatchNormForward;
  return {statistics, running,
          call<A>({{A::kY, n.outputs[0]},
                   {A::kX, x},
                   {A::kMean, mean},
                   {A::kRstd, rstd},
                   {A::kGamma, n.parameters[0]},
                   {A::kBeta, n.parameters[1]}},
                  n.attribute)};
}

// Returns the calls of DoRA. The norms of the weights are computed only in the link's first
// forward.
std::vector<Call> dora_calls(const Node& n) {
  using N = DoraNorms;
  Call norms =
      call<N>({{N::kNorms, n.outputs[1]}, {N::kW, n.parameters[2]}, {N::kA, n.parameters[3]}, {N::kB, n.parameters[4]}},
              n.attribute);
  norms.once = 1u << N::kNorms;
  using A = DoraForward;
  return {norms, call<A>({{A::kY, n.outputs[0]},
                          {A::kZ, n.inputs[0]},
                          {A::kMagnitudes, n.parameters[0]},
                          {A::kNorms, n.outputs[1]},
                          {A::kBias, n.parameters[1]}})};
}

Call attention_call(const Graph& graph, const Node& n) {
  using A = AttentionForward;
  return call<A>({{A::kY, n.outputs[0]},
                  {A::kLse, n.outputs[1]},
                  {A::kQkv, n.inputs[0]},
                  {A::kDocumentStart, document_start(n)},
                  {A::kScalars, graph.scalars}},
                 n.attribute);
}

Call rope_call(const Node& n) {
  using A = RopeForward;
  return call<A>({{A::kQkv, n.outputs[0]},
                  {A::kQ, n.inputs[0]},
                  {A::kK, n.inputs[1]},
                  {A::kV, n.inputs[2]},
                  {A::kDocumentStart, document_start(n)},
                  {A::kFrequencies, n.parameters[0]}},
                 n.attribute);
}

// Returns the call of a layer-norm or group-norm.
template <typename A>
Call norm_call(const Node& n) {
  return call<A>({{A::kY, n.outputs[0]},
                  {A::kMean, n.outputs[1]},
                  {A::kRstd, n.outputs[2]},
                  {A::kX, n.inputs[0]},
                  {A::kGamma, n.parameters[0]},
                  {A::kBeta, n.parameters[1]}},
                 n.attribute);
}

// Returns the call of a kernel that computes y from x and has no other argument.
template <typename A>
Call unary_call(const Node& n) {
  return call<A>({{A::kY, n.outputs[0]}, {A::kX, n.inputs[0]}}, n.attribute);
}

template <typename A>
Call gated_call(const Node& n) {
  return call<A>({{A::kY, n.outputs[0]}, {A::kGate, n.inputs[0]}, {A::kUp, n.inputs[1]}});
}
template <typename A>
Call gated_backward_call(const Node& n, ValueId dy) {
  return call<A>(
      {{A::kDgate, kNoValue}, {A::kDup, kNoValue}, {A::kGate, n.inputs[0]}, {A::kUp, n.inputs[1]}, {A::kDy, dy}});
}

template <typename A>
Call broadcast_call(const Node& n) {
  return call<A>({{A::kY, n.outputs[0]}, {A::kA, n.inputs[0]}, {A::kB, n.inputs[1]}});
}

Call concat_call(const Node& n) {
  using A = ConcatForward;
  const auto part = [&n](size_t i) { return i < n.inputs.size() ? n.inputs[i] : kNoValue; };
  return call<A>({{A::kY, n.outputs[0]},
                  {A::kA, part(0)},
                  {A::kB, part(1)},
                  {A::kC, part(2)},
                  {A::kD, part(3)},
                  {A::kE, part(4)},
                  {A::kF, part(5)},
                  {A::kG, part(6)},
                  {A::kH, part(7)}});
}

Call product_call(ValueId c, ValueId a, ValueId b, uint32_t attribute) {
  using A = ProductForward;
  return call<A>({{A::kC, c}, {A::kA, a}, {A::kB, b}}, attribute);
}

Call copy_call(ValueId y, ValueId x) { return call<CopyForward>({{CopyForward::kY, y}, {CopyForward::kX, x}}); }

}  // namespace

std::vector<Call> forward_calls(const Graph& graph, const Node& n) {
  const auto& in = n.inputs;
  const auto& out = n.outputs;
  const auto& p = n.parameters;
  switch (n.op) {
    case Op::kConv: {
      using A = ConvForward;
      return {call<A>({{A::kY, out[0]}, {A::kX, in[0]}, {A::kW, p[0]}, {A::kB, p[1]}}, n.attribute)};
    }
    case Op::kConvTranspose: {
      using A = ConvTransposeForward;
      return {call<A>({{A::kY, out[0]}, {A::kX, in[0]}, {A::kW, p[0]}, {A::kB, p[1]}}, n.attribute)};
    }
    case Op::kBatchNorm: return batch_norm_calls(graph, n);
    case Op::kDora: return dora_calls(n);
    case Op::kRelu: return {unary_call<ReluForward>(n)};
    case Op::kCopy: return {copy_call(out[0], in[0])};  // detach()
    case Op::kGelu: return {unary_call<GeluForward>(n)};
    case Op::kUnary: return {unary_call<UnaryForward>(n)};
    case Op::kAvgPool: return {unary_call<AvgPoolForward>(n)};
    case Op::kLearned: return {call<LearnedForward>({{LearnedForward::kY, out[0]}, {LearnedForward::kW, p[0]}})};
    case Op::kLearnedRows: {
      using A = LearnedRowsForward;
      return {call<A>({{A::kY, out[0]}, {A::kW, p[0]}, {A::kRows, p[1]}})};
    }
    case Op::kGlobalPool: {
      using A = GlobalPoolForward;
      return {call<A>({{A::kY, out[0]}, {A::kX, in[0]}, {A::kDocumentStart, document_start(n)}})};
    }
    case Op::kSwiglu: return {gated_call<SwigluForward>(n)};
    case Op::kGeglu: return {gated_call<GegluForward>(n)};
    case Op::kColumns: return {unary_call<ColumnsForward>(n)};
    case Op::kPad: return {unary_call<PadForward>(n)};
    case Op::kConcat: return {concat_call(n)};
    case Op::kReshape: return {unary_call<ReshapeForward>(n)};
    case Op::kTranspose: return {unary_call<TransposeForward>(n)};
    case Op::kResize: return {unary_call<ResizeForward>(n)};
    case Op::kAdd:
      return {call<AddForward>({{AddForward::kY, out[0]}, {AddForward::kA, in[0]}, {AddForward::kB, in[1]}})};
    case Op::kMultiply: return {broadcast_call<MultiplyForward>(n)};
    case Op::kSoftmax: return {unary_call<SoftmaxForward>(n)};
    case Op::kProduct: return {product_call(out[0], in[0], in[1], n.attribute)};
    case Op::kBroadcastAdd: return {broadcast_call<BroadcastAddForward>(n)};
    case Op::kMaxPool: {
      using A = MaxPoolForward;
      return {call<A>({{A::kY, out[0]}, {A::kIndex, out[1]}, {A::kX, in[0]}}, n.attribute)};
    }
    case Op::kLinear: return {linear_call(n)};
    case Op::kLayerNorm: return {norm_call<LayerNormForward>(n)};
    case Op::kGroupNorm: return {norm_call<GroupNormForward>(n)};
    case Op::kRmsNorm: {
      using A = RmsNormForward;
      return {call<A>({{A::kY, out[0]}, {A::kRstd, out[1]}, {A::kX, in[0]}, {A::kGamma, p[0]}}, n.attribute)};
    }
    case Op::kEmbedding: {
      using A = EmbeddingForward;
      return {call<A>({{A::kY, out[0]}, {A::kTokens, in[0]}, {A::kTable, p[0]}, {A::kPositions, p[1]}}, n.attribute)};
    }
    case Op::kAttention: return {attention_call(graph, n)};
    case Op::kRope: return {rope_call(n)};
    case Op::kDropout: {
      using A = DropoutForward;
      return {call<A>({{A::kY, out[0]}, {A::kX, in[0]}, {A::kScalars, graph.scalars}}, n.attribute)};
    }
    case Op::kLossHead:  // a loss has no forward call, because its backward also computes the loss
    case Op::kTargetLoss:
    case Op::kClassLoss:
    case Op::kPairLoss: return {};
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

namespace {

// Returns the named arguments of a loss kernel without a linear layer. A pair loss has no weights.
template <typename A>
std::vector<NamedArgument<A, ValueId>> loss_arguments(const Graph& graph, const Node& n, ValueId x) {
  std::vector<NamedArgument<A, ValueId>> named = {{A::kScalars, graph.scalars}, {A::kX, x}, {A::kLabels, graph.labels}};
  if constexpr (requires { A::kWeights; }) named.push_back({A::kWeights, n.parameters[0]});
  return named;
}
template <typename A>
Call evaluated_call(const Graph& graph, const Node& n, ValueId x) {
  return call<A>(loss_arguments<A>(graph, n, x), n.attribute);
}
template <typename A>
Call judged_call(const Graph& graph, const Node& n) {
  auto named = loss_arguments<A>(graph, n, n.inputs[0]);
  named.push_back({A::kDx, kNoValue});
  return call<A>(named, n.attribute);
}

// Returns the calls that evaluate a loss, the sum over all labels. If the graph has pairs, a first
// call stores each row's loss, and a second call computes the loss of the pairs.
std::vector<Call> evaluated_loss(Graph& graph, const Node& n, ValueId x) {
  if (n.op == Op::kTargetLoss) return {evaluated_call<TargetLossEvaluate>(graph, n, x)};
  if (n.op == Op::kClassLoss) return {evaluated_call<ClassLossEvaluate>(graph, n, x)};
  if (n.op == Op::kPairLoss) return {evaluated_call<PairLossEvaluate>(graph, n, x)};
  if (graph.pairs == kNoValue) {
    using A = LossHeadEvaluate;
    return {call<A>({{A::kScalars, graph.scalars},
                     {A::kX, x},
                     {A::kW, n.parameters[0]},
                     {A::kB, n.parameters[1]},
                     {A::kLabels, graph.labels}},
                    n.attribute)};
  }
  const ValueId losses = graph.add_value("losses", ValueKind::kActivation,
                                         {static_cast<uint32_t>(graph.tensor(graph.labels).elements())}, DType::kF64);
  const ValueId answers = graph.add_value("log_probabilities", ValueKind::kActivation,
                                          {graph.tensor(graph.pairs).shape[0], 2}, DType::kF64);
  using L = LossHeadForward;
  using P = PreferenceEvaluate;
  return {call<L>({{L::kLosses, losses},
                   {L::kX, x},
                   {L::kW, n.parameters[0]},
                   {L::kB, n.parameters[1]},
                   {L::kLabels, graph.labels}},
                  n.attribute),
          call<P>({{P::kLogProbabilities, answers},
                   {P::kScalars, graph.scalars},
                   {P::kLosses, losses},
                   {P::kPairs, graph.pairs}},
                  graph.preference)};
}

}  // namespace

std::vector<Call> evaluation_calls(Graph& graph) {
  std::vector<Call> calls;
  std::map<ValueId, ValueId> same;  // dropout and detach are the identity here: output -> input
  const auto resolve = [&same](ValueId v) { return same.count(v) != 0 ? same.at(v) : v; };
  for (const Node& n : graph.nodes) {
    if (n.op == Op::kDropout || n.op == Op::kCopy) {
      same[n.outputs[0]] = resolve(n.inputs[0]);
    } else if (n.op == Op::kBatchNorm) {
      Call call = inference_call(n);
      call.arguments[BatchNormInference::kX] = resolve(n.inputs[0]);
      calls.push_back(call);
    } else if (is_loss(n.op)) {
      for (Call& call : evaluated_loss(graph, n, resolve(n.inputs[0]))) calls.push_back(std::move(call));
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

// Returns the call of attention.decode that replaces `forward`, and appends its caches of keys and
// values to `caches`.
Call decode_call(Graph& graph, const Call& forward, uint32_t positions, std::vector<ValueId>& caches) {
  const ValueId y = forward.arguments[AttentionForward::kY], qkv = forward.arguments[AttentionForward::kQkv];
  const uint32_t shared = (graph.tensor(qkv).shape[2] - graph.tensor(y).shape[2]) / 2;
  const std::string name = graph.values[y].name;
  for (const char* part : {".keys", ".values"})
    caches.push_back(graph.add_value(name + part, ValueKind::kActivation, {positions, shared}));
  using A = AttentionDecode;
  return call<A>({{A::kY, y},
                  {A::kKeys, caches[caches.size() - 2]},
                  {A::kValues, caches.back()},
                  {A::kQkv, qkv},
                  {A::kDocumentStart, graph.document_start}},
                 forward.attribute);
}

// Returns the call that caps the logits as training does. generation.logits becomes its output.
Call capped_logits(Graph& graph, GenerationCalls& generation, uint32_t cap) {
  const ValueId logits = generation.logits;
  generation.logits = graph.add_value("capped_logits", ValueKind::kActivation, shape_of(graph.tensor(logits)));
  return call<CapForward>({{CapForward::kY, generation.logits}, {CapForward::kX, logits}}, cap);
}

}  // namespace

namespace {

// Ops that work on each position [b,t,...] by itself, if their output has the shape [B,T,...].
constexpr Op kByPosition[] = {Op::kEmbedding, Op::kLinear, Op::kDora,   Op::kLayerNorm, Op::kRmsNorm,
                              Op::kSoftmax,   Op::kRope,   Op::kRelu,   Op::kGelu,      Op::kUnary,
                              Op::kSwiglu,    Op::kGeglu,  Op::kCap,    Op::kDropout,   Op::kCopy,
                              Op::kColumns,   Op::kPad,    Op::kConcat, Op::kReshape};

// True if each position of the node's output depends only on that position or earlier ones.
bool keeps_positions(const Graph& graph, const Node& node, const std::set<ValueId>& of_tokens) {
  if (node.op == Op::kLossHead) return true;
  const Tensor &tokens = graph.tensor(graph.input), &y = graph.tensor(node.outputs[0]);
  if (y.rank < 3 || y.shape[0] != tokens.shape[0] || y.shape[1] != tokens.shape[1]) return false;
  if (node.op == Op::kAttention) return graph.attributes.of<AttentionAttribute>()[node.attribute].causal != 0;
  // An input that depends on tokens must not be broadcast along the positions.
  if (node.op == Op::kAdd || node.op == Op::kMultiply || node.op == Op::kBroadcastAdd) {
    return std::all_of(node.inputs.begin(), node.inputs.end(),
                       [&](ValueId v) { return of_tokens.count(v) == 0 || graph.tensor(v).rank == y.rank; });
  }
  return std::count(std::begin(kByPosition), std::end(kByPosition), node.op) > 0;
}

}  // namespace

const Node* node_that_sees_ahead(const Graph& graph) {
  std::set<ValueId> of_tokens = {graph.input};
  for (const Node& n : graph.nodes) {
    const bool reads_tokens =
        std::any_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) { return of_tokens.count(v) > 0; });
    if (!reads_tokens) continue;
    if (!keeps_positions(graph, n, of_tokens)) return &n;
    of_tokens.insert(n.outputs.begin(), n.outputs.end());
  }
  return nullptr;
}

GenerationCalls generation_calls(Graph& graph, uint32_t positions) {
  if (const Node* node = node_that_sees_ahead(graph)) {
    throw UserError(
        node->name + " (" + op_name(node->op) +
        "): reads what stands behind; in a model that generates attention must be causal, and every other node keep "
        "positions apart");
  }
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
      const uint32_t classes = graph.tensor(a[A::kW]).shape[0], cap = call.attribute;
      generation.logits = graph.add_value("logits", ValueKind::kActivation, {1, tokens.shape[1], classes});
      using L = LinearForward;
      call = reprise::call<L>({{L::kY, generation.logits}, {L::kX, a[A::kX]}, {L::kW, a[A::kW]}, {L::kB, a[A::kB]}},
                              graph.attributes.intern(LinearAttribute{0}));
      if (graph.attributes.of<CapAttribute>()[cap].softcap > 0) {
        generation.calls.push_back(call);
        call = capped_logits(graph, generation, cap);
      }
    }
    generation.calls.push_back(call);
  }
  return generation;
}

BackwardBuilder::BackwardBuilder(Graph& graph) : graph_(graph), needs_gradient_(graph.values.size(), false) {
  for (const Node& n : graph.nodes) {
    bool needs = false;
    for (ValueId v : n.inputs) needs = needs || (needs_gradient_[v] && n.op != Op::kCopy);
    for (ValueId v : n.parameters) needs = needs || (v != kNoValue && trains(graph.values[v]));
    for (ValueId v : n.outputs) needs_gradient_[v] = needs;
  }
}

BackwardBuilder::Range BackwardBuilder::build(size_t first, size_t end, ValueId input, ValueId output,
                                              ValueId d_output) {
  calls_.clear();
  holders_.clear();
  gradient_ = skip_gradients_;
  d_output_ = d_output;
  if (d_output != kNoValue) gradient_[output] = d_output;
  for (const auto& [v, gradient] : gradient_) holders_[gradient] = 1;
  for (size_t i = end; i-- > first;) {
    const Node node = graph_.nodes[i];
    if (is_loss(node.op)) {
      loss(node);
      continue;
    }
    const auto found = gradient_.find(node.outputs[0]);
    if (found == gradient_.end()) continue;
    const ValueId dy = found->second;
    differentiate(node, dy);
    --holders_[dy];
    gradient_.erase(node.outputs[0]);
    skip_gradients_.erase(node.outputs[0]);
  }
  Range range;
  std::set<ValueId> owned;
  hold_gradients(owned);
  if (gradient_.count(input) != 0) {
    own_gradient(input, owned);
    range.d_input = gradient_.at(input);
  }
  range.calls = std::move(calls_);
  return range;
}

// Ensures that the gradient of v can be used after the range, by a copy if necessary. A copy is
// needed if the gradient is the range's d_output or the skip gradient of another value. It is also
// needed if the gradient is already a result of the range for another value.
void BackwardBuilder::own_gradient(ValueId v, std::set<ValueId>& owned) {
  const ValueId gradient = gradient_.at(v);
  const auto held = skip_gradients_.find(v);
  const bool is_its_own = held != skip_gradients_.end() && held->second == gradient;
  const bool is_free =
      gradient != d_output_ && graph_.values[gradient].kind != ValueKind::kSkipGradient && owned.count(gradient) == 0;
  if (!is_its_own && !is_free) {
    const ValueId copy = fresh_gradient(v);
    calls_.push_back(copy_call(copy, gradient));
    gradient_[v] = copy;
  }
  owned.insert(gradient_.at(v));
}

void BackwardBuilder::hold_gradients(std::set<ValueId>& owned) {
  for (const auto& [v, unused] : std::map<ValueId, ValueId>(gradient_)) {
    if (graph_.values[v].kind != ValueKind::kSkip) continue;
    own_gradient(v, owned);
    skip_gradients_[v] = gradient_.at(v);
    graph_.values[gradient_.at(v)].kind = ValueKind::kSkipGradient;
  }
}

ValueId BackwardBuilder::fresh_gradient(ValueId v) {
  const Value& value = graph_.values[v];
  return graph_.add_value("d(" + value.name + ")", ValueKind::kGradient,
                          Shape(value.tensor.shape, value.tensor.shape + value.tensor.rank));
}

// Makes `call` write the gradient of v as its argument `output`, or add to the gradient that
// exists. If the call cannot accumulate, a copy adds its result.
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
  // Another value uses the same gradient tensor, so v first gets a copy, which the call may change.
  if (found->second == d_output_ || holders_[found->second] > 1) {
    const ValueId own = fresh_gradient(v);
    calls_.push_back(copy_call(own, found->second));
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
    calls_.push_back(copy_call(found->second, part));
    calls_.back().accumulate = 1;
  }
}

// Makes `call` write the gradients of several values as its outputs 0, 1, ... Each is a new value,
// which is added to the gradient that exists, if any. The gradient of a value that needs none is
// also written, but not used.
void BackwardBuilder::write_each(const std::vector<ValueId>& values, Call call) {
  for (size_t i = 0; i < values.size(); ++i) call.arguments[i] = fresh_gradient(values[i]);
  calls_.push_back(call);
  for (size_t i = 0; i < values.size(); ++i) {
    const ValueId v = values[i], part = call.arguments[i];
    if (!needs_gradient_[v]) continue;
    if (gradient_.find(v) != gradient_.end()) {
      write(v, copy_call(kNoValue, part), CopyForward::kY, true);
    } else {
      gradient_[v] = part;
      holders_[part] = 1;
    }
  }
}

// Makes dy the gradient of v, or adds dy to the gradient that v already has. In the first case
// several values may share dy, until write() gives one of them a copy.
void BackwardBuilder::pass_on(ValueId v, ValueId dy) {
  if (!needs_gradient_[v]) return;
  if (gradient_.find(v) == gradient_.end()) {
    gradient_[v] = dy;
    ++holders_[dy];
  } else {
    write(v, copy_call(kNoValue, dy), CopyForward::kY, true);
  }
}

// Makes `call` write the gradient of a parameter as its argument `output`, and add to it if an
// earlier call of the step wrote it. Returns the gradient; kNoValue for a frozen parameter.
ValueId BackwardBuilder::weight_gradient(ValueId parameter, Call& call, uint32_t output) {
  if (parameter == kNoValue || !trains(graph_.values[parameter])) return kNoValue;
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
  const ValueId x = n.inputs.empty() ? kNoValue : n.inputs[0];
  switch (n.op) {
    case Op::kConv: return convolution(n, dy);
    case Op::kConvTranspose: return transposed_convolution(n, dy);
    case Op::kLinear: return linear(n, dy);
    case Op::kDora: return dora(n, dy);
    case Op::kBatchNorm: return uses_running_statistics(graph_, n) ? running_batch_norm(n, dy) : normalisation(n, dy);
    case Op::kGroupNorm:
    case Op::kLayerNorm: return normalisation(n, dy);
    case Op::kRelu:
      return write(x,
                   call<ReluBackward>(
                       {{ReluBackward::kDx, kNoValue}, {ReluBackward::kY, n.outputs[0]}, {ReluBackward::kDy, dy}}),
                   ReluBackward::kDx, false);
    case Op::kCopy: return;  // detach(): no gradient flows
    case Op::kSwiglu: return write_each(n.inputs, gated_backward_call<SwigluBackward>(n, dy));
    case Op::kGeglu: return write_each(n.inputs, gated_backward_call<GegluBackward>(n, dy));
    case Op::kColumns: {
      using A = ColumnsBackward;
      return write(x, call<A>({{A::kDx, kNoValue}, {A::kDy, dy}}, n.attribute), A::kDx, true);
    }
    case Op::kPad: {
      using A = PadBackward;
      return write(x, call<A>({{A::kDx, kNoValue}, {A::kDy, dy}}, n.attribute), A::kDx, true);
    }
    case Op::kTranspose: {
      using A = TransposeBackward;
      return write(x, call<A>({{A::kDx, kNoValue}, {A::kDy, dy}}, n.attribute), A::kDx, true);
    }
    case Op::kResize: {
      using A = ResizeBackward;
      return write(x, call<A>({{A::kDx, kNoValue}, {A::kDy, dy}}, n.attribute), A::kDx, true);
    }
    case Op::kConcat: return concat(n, dy);
    case Op::kReshape:
      if (gradient_.find(x) != gradient_.end()) return write(x, copy_call(kNoValue, dy), CopyForward::kY, true);
      return write(x, call<ReshapeForward>({{ReshapeForward::kY, kNoValue}, {ReshapeForward::kX, dy}}),
                   ReshapeForward::kY, false);
    case Op::kGelu:
      return write(x,
                   call<GeluBackward>({{GeluBackward::kDx, kNoValue}, {GeluBackward::kX, x}, {GeluBackward::kDy, dy}},
                                      n.attribute),
                   GeluBackward::kDx, false);
    case Op::kUnary: {
      using A = UnaryBackward;
      // relu6 has the same derivative at its output as at its input, so that its input need not be
      // kept as well.
      const bool from_output =
          graph_.attributes.of<UnaryAttribute>()[n.attribute].function == static_cast<uint32_t>(UnaryFunction::kRelu6);
      return write(x, call<A>({{A::kDx, kNoValue}, {A::kX, from_output ? n.outputs[0] : x}, {A::kDy, dy}}, n.attribute),
                   A::kDx, false);
    }
    case Op::kAdd:
      pass_on(n.inputs[0], dy);
      return pass_on(n.inputs[1], dy);
    case Op::kLearned: {
      using A = LearnedBackward;
      Call weight = call<A>({{A::kDw, kNoValue}, {A::kDy, dy}});
      if (weight_gradient(n.parameters[0], weight, A::kDw) != kNoValue) calls_.push_back(weight);
      return;
    }
    case Op::kLearnedRows: {
      using A = LearnedRowsBackward;
      Call weight = call<A>({{A::kDw, kNoValue}, {A::kRows, n.parameters[1]}, {A::kDy, dy}});
      if (weight_gradient(n.parameters[0], weight, A::kDw) != kNoValue) calls_.push_back(weight);
      return;
    }
    case Op::kMultiply: return multiply(n, dy);
    case Op::kProduct: return product(n, dy);
    case Op::kSoftmax: {
      using A = SoftmaxBackward;
      return write(x, call<A>({{A::kDx, kNoValue}, {A::kY, n.outputs[0]}, {A::kDy, dy}}), A::kDx, false);
    }
    case Op::kBroadcastAdd: {
      using A = BroadcastAddBackward;
      pass_on(x, dy);
      if (needs_gradient_[n.inputs[1]]) write(n.inputs[1], call<A>({{A::kDb, kNoValue}, {A::kDy, dy}}), A::kDb, true);
      return;
    }
    case Op::kMaxPool: {
      using A = MaxPoolBackward;
      return write(x, call<A>({{A::kDx, kNoValue}, {A::kIndex, n.outputs[1]}, {A::kDy, dy}}, n.attribute), A::kDx,
                   true);
    }
    case Op::kAvgPool: {
      using A = AvgPoolBackward;
      return write(x, call<A>({{A::kDx, kNoValue}, {A::kDy, dy}}, n.attribute), A::kDx, true);
    }
    case Op::kGlobalPool: {
      using A = GlobalPoolBackward;
      return write(x, call<A>({{A::kDx, kNoValue}, {A::kDy, dy}, {A::kDocumentStart, document_start(n)}}), A::kDx,
                   true);
    }
    case Op::kAttention: {
      using A = AttentionBackward;
      return write(x,
                   call<A>({{A::kDqkv, kNoValue},
                            {A::kQkv, x},
                            {A::kY, n.outputs[0]},
                            {A::kLse, n.outputs[1]},
                            {A::kDy, dy},
                            {A::kDocumentStart, document_start(n)},
                            {A::kScalars, graph_.scalars}},
                           n.attribute),
                   A::kDqkv, false);
    }
    case Op::kRope: {
      using A = RopeBackward;
      return write_each({n.inputs[0], n.inputs[1], n.inputs[2]}, call<A>({{A::kDq, kNoValue},
                                                                          {A::kDk, kNoValue},
                                                                          {A::kDv, kNoValue},
                                                                          {A::kDqkv, dy},
                                                                          {A::kDocumentStart, document_start(n)},
                                                                          {A::kFrequencies, n.parameters[0]}},
                                                                         n.attribute));
    }
    case Op::kDropout: {
      using A = DropoutBackward;
      return write(x, call<A>({{A::kDx, kNoValue}, {A::kDy, dy}, {A::kScalars, graph_.scalars}}, n.attribute), A::kDx,
                   false);
    }
    case Op::kRmsNorm: {
      using A = RmsNormBackward;
      Call norm = call<A>(
          {{A::kDx, kNoValue}, {A::kX, x}, {A::kRstd, n.outputs[1]}, {A::kGamma, n.parameters[0]}, {A::kDy, dy}},
          n.attribute);
      weight_gradient(n.parameters[0], norm, A::kDgamma);
      return write(x, norm, A::kDx, true);
    }
    case Op::kEmbedding: {
      using A = EmbeddingBackward;
      Call tables = call<A>({{A::kTokens, x}, {A::kDy, dy}}, n.attribute);
      weight_gradient(n.parameters[0], tables, A::kDtable);
      weight_gradient(n.parameters[1], tables, A::kDpositions);
      calls_.push_back(tables);
      return;
    }
    default: throw std::logic_error("op without a backward rule: " + n.name);
  }
}

// Appends the gradients of the weight, of the bias and of x, in this order. The weight's gradient
// is the last to read x, so that the gradient of x may reuse the bytes of x.
void BackwardBuilder::convolution(const Node& n, ValueId dy) {
  const ValueId x = n.inputs[0];
  using W = ConvBackwardWeight;
  Call weight = call<W>({{W::kDw, kNoValue}, {W::kX, x}, {W::kDy, dy}}, n.attribute);
  if (weight_gradient(n.parameters[0], weight, W::kDw) != kNoValue) calls_.push_back(weight);
  bias_gradient(n.parameters[1], dy);
  using D = ConvBackwardData;
  if (needs_gradient_[x])
    write(x, call<D>({{D::kDx, kNoValue}, {D::kDy, dy}, {D::kW, n.parameters[0]}}, n.attribute), D::kDx, true);
}

// Appends the gradient of b first, the only one that reads a. The gradient of a is then the last
// that reads dy, and may be written over dy.
void BackwardBuilder::multiply(const Node& n, ValueId dy) {
  const ValueId a = n.inputs[0], b = n.inputs[1];
  using W = MultiplyBackwardWeight;
  if (needs_gradient_[b]) write(b, call<W>({{W::kDb, kNoValue}, {W::kDy, dy}, {W::kA, a}}), W::kDb, true);
  using D = MultiplyBackwardData;
  if (needs_gradient_[a]) write(a, call<D>({{D::kDa, kNoValue}, {D::kDy, dy}, {D::kB, b}}), D::kDa, false);
}

// Appends dB = A^T dC and dA = dC B^T, each in the layout of its factor.
void BackwardBuilder::product(const Node& n, ValueId dc) {
  const ValueId a = n.inputs[0], b = n.inputs[1];
  const ProductAttribute how = graph_.attributes.of<ProductAttribute>()[n.attribute];
  const auto write_product = [&](ValueId to, ValueId first, ValueId second, ProductAttribute transposed) {
    if (needs_gradient_[to])
      write(to, product_call(kNoValue, first, second, graph_.attributes.intern(transposed)), ProductForward::kC, true);
  };
  how.transposed_b != 0 ? write_product(b, dc, a, {1, how.transposed_a})
                        : write_product(b, a, dc, {1 - how.transposed_a, 0});
  how.transposed_a != 0 ? write_product(a, b, dc, {how.transposed_b, 1})
                        : write_product(a, dc, b, {0, 1 - how.transposed_b});
}

// Appends the gradients of the weight, of the bias and of x. The node computes the data gradient of
// a convolution. So its own data gradient is that convolution's forward, applied to dy.
void BackwardBuilder::transposed_convolution(const Node& n, ValueId dy) {
  const ValueId x = n.inputs[0];
  using W = ConvBackwardWeight;
  Call weight = call<W>({{W::kDw, kNoValue}, {W::kX, dy}, {W::kDy, x}}, n.attribute);
  if (weight_gradient(n.parameters[0], weight, W::kDw) != kNoValue) calls_.push_back(weight);
  bias_gradient(n.parameters[1], dy);
  using D = ConvForward;
  if (needs_gradient_[x])
    write(x, call<D>({{D::kY, kNoValue}, {D::kX, dy}, {D::kW, n.parameters[0]}}, n.attribute), D::kY, false);
}

// Appends the gradient of a bias, for any op that adds a bias to each of its channels.
void BackwardBuilder::bias_gradient(ValueId parameter, ValueId dy) {
  using B = LinearBackwardBias;
  Call bias = call<B>({{B::kDb, kNoValue}, {B::kDy, dy}});
  if (weight_gradient(parameter, bias, B::kDb) != kNoValue) calls_.push_back(bias);
}

// Appends the gradients in the order of convolution(). The backward uses no scale: only the first
// layer of an adapter has a scale, and adapter() has already multiplied that layer's dy by it.
void BackwardBuilder::linear(const Node& n, ValueId dy) {
  const ValueId x = n.inputs[0];
  const uint32_t unscaled =
      graph_.attributes.intern(LinearAttribute{graph_.attributes.of<LinearAttribute>()[n.attribute].input_major});
  using W = LinearBackwardWeight;
  Call weight = call<W>({{W::kDw, kNoValue}, {W::kX, x}, {W::kDy, dy}}, unscaled);
  if (weight_gradient(n.parameters[0], weight, W::kDw) != kNoValue) calls_.push_back(weight);
  bias_gradient(n.parameters[1], dy);
  if (n.low_rank != kNoNode) adapter(n, dy);
  using D = LinearBackwardData;
  if (needs_gradient_[x])
    write(x, call<D>({{D::kDx, kNoValue}, {D::kDy, dy}, {D::kW, n.parameters[0]}}, unscaled), D::kDx, true);
}

// Appends the gradient of U, then the gradient of the hidden values before they were scaled.
void BackwardBuilder::adapter(const Node& n, ValueId dy) {
  const ValueId hidden = n.inputs[1], up = n.parameters[2];
  using W = LinearBackwardWeight;
  Call weight =
      call<W>({{W::kDw, kNoValue}, {W::kX, hidden}, {W::kDy, dy}}, graph_.attributes.intern(LinearAttribute{0}));
  if (weight_gradient(up, weight, W::kDw) != kNoValue) calls_.push_back(weight);
  const uint32_t scaled = graph_.nodes[n.low_rank].attribute;
  using D = LinearBackwardData;
  if (needs_gradient_[hidden])
    write(hidden, call<D>({{D::kDx, kNoValue}, {D::kDy, dy}, {D::kW, up}}, scaled), D::kDx, true);
}

// Appends the gradient of each part, which is the box of dy at the position of the part.
void BackwardBuilder::concat(const Node& n, ValueId dy) {
  const Tensor y = graph_.tensor(n.outputs[0]);
  uint32_t axis = 0;
  while (graph_.tensor(n.inputs[0]).shape[axis] == y.shape[axis]) ++axis;
  uint32_t begin = 0;
  for (const ValueId part : n.inputs) {
    const uint32_t behind = y.rank - 1 - axis;
    const ColumnsAttribute box = {behind == 0 ? begin : 0, behind == 1 ? begin : 0, behind == 2 ? begin : 0};
    using A = ColumnsForward;
    if (needs_gradient_[part])
      write(part, call<A>({{A::kY, kNoValue}, {A::kX, dy}}, graph_.attributes.intern(box)), A::kY, true);
    begin += graph_.tensor(part).shape[axis];
  }
}

// Appends the gradient of the bias first, so that dz may reuse the bytes of dy.
void BackwardBuilder::dora(const Node& n, ValueId dy) {
  bias_gradient(n.parameters[1], dy);
  using A = DoraBackward;
  Call scale = call<A>({{A::kDz, kNoValue},
                        {A::kZ, n.inputs[0]},
                        {A::kMagnitudes, n.parameters[0]},
                        {A::kNorms, n.outputs[1]},
                        {A::kDy, dy}});
  weight_gradient(n.parameters[0], scale, A::kDmagnitudes);
  write(n.inputs[0], scale, A::kDz, false);
}

namespace {

// Returns the backward call of batch-norm, group-norm or layer-norm. In all three the gradients of
// x, gamma and beta have the same argument indices.
template <typename A>
Call norm_backward_call(const Node& n, ValueId dy) {
  static_assert(uint32_t{A::kDx} == LayerNormBackward::kDx && uint32_t{A::kDgamma} == LayerNormBackward::kDgamma &&
                uint32_t{A::kDbeta} == LayerNormBackward::kDbeta);
  return call<A>({{A::kDx, kNoValue},
                  {A::kX, n.inputs[0]},
                  {A::kMean, n.outputs[1]},
                  {A::kRstd, n.outputs[2]},
                  {A::kGamma, n.parameters[0]},
                  {A::kDy, dy}},
                 A::kInfo.attribute == kNoAttribute ? 0 : n.attribute);
}
Call norm_backward_call(const Node& n, ValueId dy) {
  if (n.op == Op::kLayerNorm) return norm_backward_call<LayerNormBackward>(n, dy);
  if (n.op == Op::kGroupNorm) return norm_backward_call<GroupNormBackward>(n, dy);
  return norm_backward_call<BatchNormBackward>(n, dy);
}

}  // namespace

void BackwardBuilder::normalisation(const Node& n, ValueId dy) {
  Call norm = norm_backward_call(n, dy);
  using A = LayerNormBackward;
  weight_gradient(n.parameters[0], norm, A::kDgamma);
  weight_gradient(n.parameters[1], norm, A::kDbeta);
  write(n.inputs[0], norm, A::kDx, n.op == Op::kLayerNorm);
}

// Appends the gradient of the bias first, so that dx may reuse the bytes of dy.
void BackwardBuilder::running_batch_norm(const Node& n, ValueId dy) {
  bias_gradient(n.parameters[1], dy);
  using A = BatchNormBackwardData;
  if (!needs_gradient_[n.inputs[0]]) return;
  write(n.inputs[0],
        call<A>({{A::kDx, kNoValue}, {A::kDy, dy}, {A::kRunningVar, n.buffers[1]}, {A::kGamma, n.parameters[0]}},
                n.attribute),
        A::kDx, false);
}

void BackwardBuilder::loss(const Node& n) {
  if (n.op == Op::kTargetLoss)
    return write(n.inputs[0], judged_call<TargetLossBackward>(graph_, n), TargetLossBackward::kDx, false);
  if (n.op == Op::kClassLoss)
    return write(n.inputs[0], judged_call<ClassLossBackward>(graph_, n), ClassLossBackward::kDx, false);
  if (n.op == Op::kPairLoss)
    return write(n.inputs[0], judged_call<PairLossBackward>(graph_, n), PairLossBackward::kDx, false);
  using A = LossHeadBackward;
  Call head = call<A>({{A::kDx, kNoValue},
                       {A::kScalars, graph_.scalars},
                       {A::kX, n.inputs[0]},
                       {A::kW, n.parameters[0]},
                       {A::kB, n.parameters[1]},
                       {A::kLabels, graph_.labels}},
                      n.attribute);
  if (graph_.pairs != kNoValue) head.arguments[A::kRowWeights] = row_weights(n);
  weight_gradient(n.parameters[0], head, A::kDw);
  weight_gradient(n.parameters[1], head, A::kDb);
  write(n.inputs[0], head, A::kDx, false);
}

// Appends the calls that compute a weight for each row's loss, and returns the weights. The weights
// depend on the losses of all rows. Called only if the graph has pairs.
ValueId BackwardBuilder::row_weights(const Node& n) {
  const Shape rows = {static_cast<uint32_t>(graph_.tensor(graph_.labels).elements())};
  const ValueId losses = graph_.add_value("losses", ValueKind::kGradient, rows, DType::kF64);
  const ValueId weights = graph_.add_value("row_weights", ValueKind::kGradient, rows, DType::kF32);
  using L = LossHeadForward;
  calls_.push_back(call<L>({{L::kLosses, losses},
                            {L::kX, n.inputs[0]},
                            {L::kW, n.parameters[0]},
                            {L::kB, n.parameters[1]},
                            {L::kLabels, graph_.labels}},
                           n.attribute));
  using P = PreferenceBackward;
  calls_.push_back(
      call<P>({{P::kWeights, weights}, {P::kScalars, graph_.scalars}, {P::kLosses, losses}, {P::kPairs, graph_.pairs}},
              graph_.preference));
  return weights;
}

}  // namespace reprise
