// Reverse-mode differentiation over terms. All values are kept, so the only order that matters is
// that of sums. It is the order of the graph (DESIGN 1.3): the contributions to a gradient are
// added from the last node to the first. A node that adds contributes to its first input first.
#include "tests/judges/expected_terms.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>

namespace reprise::testing {

Term state_leaf(TermTable& terms, const std::string& name, const Form& form) {
  return terms.leaf("state " + name, form);
}
Term input_leaf(TermTable& terms, const std::string& batch, const Form& form) {
  return terms.leaf("input of " + batch, form);
}
Term labels_leaf(TermTable& terms, const std::string& batch, const Form& form) {
  return terms.leaf("labels of " + batch, form);
}
Term document_start_leaf(TermTable& terms, const std::string& batch, const Form& form) {
  return terms.leaf("starts of documents of " + batch, form);
}
Term pairs_leaf(TermTable& terms, const std::string& batch, const Form& form) {
  return terms.leaf("pairs of " + batch, form);
}
Term token_types_leaf(TermTable& terms, const std::string& batch, const Form& form) {
  return terms.leaf("types of tokens of " + batch, form);
}
std::string training_batch(uint32_t micro_batch) { return "micro-batch " + std::to_string(micro_batch); }

namespace {

// Returns the kind of the tensors of State that store such values; none if State does not store
// them.
std::optional<StateKind> state_kind(ValueKind kind) {
  switch (kind) {
    case ValueKind::kParameter: return StateKind::kParameter;
    case ValueKind::kBuffer: return StateKind::kBuffer;
    case ValueKind::kTable: return StateKind::kTable;
    default: return std::nullopt;
  }
}

class Derivation {
 public:
  Derivation(const Graph& network, const Recipe& recipe, TermTable& terms)
      : recipe_(recipe), graph_(network), terms_(terms) {
    find_needs();
    for (ValueId v = 0; v < graph_.values.size(); ++v) {
      const Value& value = graph_.values[v];
      const std::optional<StateKind> kind = state_kind(value.kind);
      if (!kind) continue;
      lasting_[v] = state_leaf(terms_, value.name, form(v));
      ExpectedTensor& tensor = step_.state[value.name];
      tensor = {*kind, value.init, value.init_scale, value.numbers, lasting_[v], kNoTerm};
    }
  }

  ExpectedStep run() {
    const uint32_t ranks = static_cast<uint32_t>(recipe_.ranks());
    scalars_ = host_scalars(terms_, recipe_.seed, kTrainingStep);
    for (uint32_t u = 0; u < static_cast<uint32_t>(recipe_.micro_batches()); u += ranks)
      ranks == 1 ? micro_batch(u) : micro_batches_of_ranks(u, ranks);
    if (recipe_.parallel) weight_gradient_ = sum_of_ranks();
    update();
    step_.scalars = scalars_;
    for (const auto& [v, term] : lasting_) step_.state[graph_.values[v].name].after = term;
    evaluate();
    return std::move(step_);
  }

 private:
  void micro_batch(uint32_t u) {
    scalars_[Scalar::kMicroBatch] = micro_batch_leaf(terms_, u);
    start_batch(training_batch(u));
    if (recipe_.parallel) weight_gradient_.clear();
    for (const Node& node : graph_.nodes) forward(node);
    for (size_t i = graph_.nodes.size(); i-- > 0;) backward(graph_.nodes[i]);
    if (recipe_.parallel) add_gradients(u);
  }

  // Runs one micro-batch in each of `ranks` ranks, with the numbers from `first` on.
  void micro_batches_of_ranks(uint32_t first, uint32_t ranks) {
    Scalars step = scalars_;
    const Scalars before = step;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      scalars_ = scalars_of_rank(terms_, before);
      micro_batch(first + rank);
      add_rank(terms_, scalars_, step);
    }
    step[Scalar::kMicroBatch] = micro_batch_leaf(terms_, static_cast<uint32_t>(recipe_.micro_batches()) - 1);
    scalars_ = step;
  }

  using Gradients = std::map<ValueId, Term>;  // key: parameter

  void add(const Gradients& gradients, Gradients& sums) {
    for (const auto& [p, gradient] : gradients) {
      const auto [sum, is_first] = sums.try_emplace(p, gradient);
      if (!is_first) sum->second = terms_.sum(sum->second, gradient);
    }
  }
  // Adds the complete gradients of micro-batch `u` to a sum. Called only if the recipe has ranks.
  // In the two-level order each rank has a sum of its own; otherwise there is one sum, number 0.
  void add_gradients(uint32_t u) {
    const uint32_t rank = recipe_.parallel->two_levels ? u % static_cast<uint32_t>(recipe_.ranks()) : 0;
    add(weight_gradient_, rank_gradient_[rank]);
  }
  Gradients sum_of_ranks() {
    Gradients sums;
    for (const auto& [rank, gradients] : rank_gradient_) add(gradients, sums);
    return sums;
  }

  Form form(ValueId v) const { return form_of(graph_.tensor(v)); }
  Term value(ValueId v) const {
    if (v == kNoValue) return kNoTerm;
    const auto lasting = lasting_.find(v);
    return lasting != lasting_.end() ? lasting->second : value_.at(v);
  }
  // Returns the document starts of an attention, a pool or a rope; kNoTerm if there are none. They
  // are the last input, after x, or after q, k and v in a rope.
  Term document_start(const Node& n) const {
    const size_t others = n.op == Op::kRope ? 3 : 1;
    return n.inputs.size() > others ? value(n.inputs[others]) : kNoTerm;
  }
  // Returns the first input; kNoValue if the node has none.
  static ValueId first_input(const Node& n) { return n.inputs.empty() ? kNoValue : n.inputs[0]; }
  bool is_marked(ValueId v) const { return v != kNoValue && graph_.values[v].trainable; }
  bool trains(ValueId v) const { return is_marked(v) && graph_.values[v].kind == ValueKind::kParameter; }

  // Marks the values that depend on a trained parameter, because they need a gradient.
  void find_needs() {
    needs_.assign(graph_.values.size(), false);
    for (const Node& n : graph_.nodes) {
      bool needs = false;
      for (const ValueId p : n.parameters) needs |= trains(p);
      for (const ValueId v : n.inputs) needs |= needs_[v] && n.op != Op::kCopy;  // a copy passes no gradient on
      for (const ValueId v : n.outputs) needs_[v] = needs;
    }
  }

  void start_batch(const std::string& batch) {
    value_.clear();
    gradient_.clear();
    value_[graph_.input] = input_leaf(terms_, batch, form(graph_.input));
    value_[graph_.labels] = labels_leaf(terms_, batch, form(graph_.labels));
    if (graph_.document_start != kNoValue)
      value_[graph_.document_start] = document_start_leaf(terms_, batch, form(graph_.document_start));
    if (graph_.pairs != kNoValue) value_[graph_.pairs] = pairs_leaf(terms_, batch, form(graph_.pairs));
    if (graph_.token_types != kNoValue)
      value_[graph_.token_types] = token_types_leaf(terms_, batch, form(graph_.token_types));
  }

  Application application(const Node& n, Pass pass, std::vector<Term> inputs) const {
    const std::vector<Term> read = scalars_read(n.op, pass, scalars_);
    inputs.insert(inputs.end(), read.begin(), read.end());
    return {n.op, pass, attribute_words(graph_.attributes, n.op, pass, n.attribute), inputs};
  }

  // Defines output i of the node as output i of the call.
  void define(const Node& n, const Application& call) {
    for (uint32_t i = 0; i < n.outputs.size(); ++i) value_[n.outputs[i]] = terms_.output(call, i, form(n.outputs[i]));
  }

  void forward(const Node& n) {
    if (n.outputs.empty()) return;  // a loss
    if (n.op == Op::kBatchNorm) return batch_norm(n);
    if (n.op == Op::kDora) return dora(n);
    if (n.op == Op::kReshape || n.op == Op::kCopy) {
      value_[n.outputs[0]] = terms_.copy(value(n.inputs[0]), form(n.outputs[0]));
      return;
    }
    std::vector<Term> inputs;
    for (const ValueId v : n.inputs) inputs.push_back(value(v));
    if (n.op == Op::kAttention || n.op == Op::kGlobalPool) inputs = {inputs[0], document_start(n)};
    if (n.op == Op::kRope) inputs = {inputs[0], inputs[1], inputs[2], document_start(n)};
    if (n.op == Op::kLinear) inputs = {inputs[0]};
    if (n.op == Op::kConcat) inputs.resize(ConcatForward::kArity - 1, kNoTerm);
    for (const ValueId p : n.parameters) inputs.push_back(value(p));
    // The inputs of a linear kernel are x, W, b, h, U. h, the adapter's product, is the node's
    // second input, so it is inserted before U. Without an adapter both are absent.
    if (n.op == Op::kLinear && n.inputs.size() == 2) inputs.insert(inputs.end() - 1, value(n.inputs[1]));
    if (n.op == Op::kLinear && n.inputs.size() == 1) inputs.insert(inputs.end(), {kNoTerm, kNoTerm});
    define(n, application(n, Pass::kForward, inputs));
  }

  // True if a batch-norm uses the statistics of the batch. The node states whether it does, or
  // leaves it to the weight: a trained weight means yes.
  bool takes_batch_statistics(const Node& n) const {
    return n.statistics == NormStatistics::kByWeight ? is_marked(n.parameters[0])
                                                     : n.statistics == NormStatistics::kOfBatch;
  }

  // Normalises by running statistics. Used in evaluation, and in training if
  // takes_batch_statistics() is false.
  Application normal_by_running(const Node& n) {
    return application(n, Pass::kInference,
                       {value(n.inputs[0]), value(n.buffers[0]), value(n.buffers[1]), value(n.parameters[0]),
                        value(n.parameters[1])});
  }

  void batch_norm(const Node& n) {
    const Term x = value(n.inputs[0]);
    if (!takes_batch_statistics(n)) {
      value_[n.outputs[0]] = terms_.output(normal_by_running(n), 0, form(n.outputs[0]));
      return;
    }
    const Application statistics = application(n, Pass::kStatistics, {x});
    const Term mean = value_[n.outputs[1]] = terms_.output(statistics, 0, form(n.outputs[1]));
    const Term rstd = value_[n.outputs[2]] = terms_.output(statistics, 1, form(n.outputs[2]));
    const Application running = application(n, Pass::kRunning, {mean, rstd});
    for (uint32_t i = 0; i < 3; ++i) {
      Term& buffer = lasting_.at(n.buffers[i]);
      buffer = terms_.output(running, i, form(n.buffers[i]), buffer);
    }
    const Application normal =
        application(n, Pass::kForward, {x, mean, rstd, value(n.parameters[0]), value(n.parameters[1])});
    value_[n.outputs[0]] = terms_.output(normal, 0, form(n.outputs[0]));
  }

  // Computes the norms of the rows of W + s B A. The output is y = z m / norms + bias, where z is
  // the node's input and m its vector of magnitudes.
  void dora(const Node& n) {
    const auto parameter = [&](uint32_t i) { return value(n.parameters[i]); };
    const Term norms = value_[n.outputs[1]] =
        terms_.output(application(n, Pass::kStatistics, {parameter(2), parameter(3), parameter(4)}), 0,
                      form(n.outputs[1]));
    const Application scaled = application(n, Pass::kForward, {value(n.inputs[0]), parameter(0), norms, parameter(1)});
    value_[n.outputs[0]] = terms_.output(scaled, 0, form(n.outputs[0]));
  }

  // ---- the chain rule ----

  // Adds output `argument` of `call` to the gradient of v. If a gradient exists and the kernel
  // cannot add to it, the output is a separate term, which a copy adds.
  void contribute(ValueId v, const Application& call, uint32_t argument) {
    if (!needs_[v]) return;
    const auto sum = gradient_.find(v);
    const KernelInfo& kernel = kernel_info(call.op, call.pass);
    if (sum == gradient_.end()) {
      gradient_[v] = terms_.output(call, argument, form(v));
    } else if (kernel.arguments[argument].may_accumulate) {
      sum->second = terms_.output(call, argument, form(v), sum->second);
    } else {
      add_copy(v, terms_.output(call, argument, form(v)));
    }
  }
  void add_copy(ValueId v, Term part) {
    gradient_[v] = terms_.output({Op::kCopy, Pass::kForward, {}, {part}}, 0, form(v), gradient_.at(v));
  }
  // Adds dy itself to the gradient of v, as the backward of an addition does.
  void hand_on(ValueId v, Term dy) {
    if (!needs_[v]) return;
    if (gradient_.count(v) == 0) {
      gradient_[v] = dy;
    } else {
      add_copy(v, dy);
    }
  }

  // Adds an output of `call` to the gradient of a parameter, which is a sum over nodes and
  // micro-batches.
  void contribute_weight(ValueId parameter, const Application& call, uint32_t argument) {
    if (!trains(parameter)) return;
    Term& sum = weight_gradient_[parameter];
    Form of_sum = form(parameter);  // gradients are f32 even if the parameter is not
    of_sum.dtype = DType::kF32;
    sum = terms_.output(call, argument, of_sum, sum);
  }

  void backward(const Node& n) {
    if (n.op == Op::kLossHead) return loss(n);
    if (is_loss(n.op)) return judged(n);
    // Nothing to do if no input depends on a trained parameter, or if no gradient reaches the
    // output.
    if (!needs_[n.outputs[0]] || gradient_.count(n.outputs[0]) == 0) return;
    const ValueId x = first_input(n);
    const Term dy = gradient_.at(n.outputs[0]);
    switch (n.op) {
      case Op::kConv:
        contribute_weight(n.parameters[0], application(n, Pass::kBackwardWeight, {value(x), dy}), 0);
        contribute_weight(n.parameters[1], {Op::kLinear, Pass::kBackwardBias, {}, {dy}}, 0);
        return contribute(x, application(n, Pass::kBackwardData, {dy, value(n.parameters[0])}), 0);
      // A transposed convolution is the backward data of a convolution. So its own backward is that
      // convolution's forward.
      case Op::kConvTranspose: {
        const auto of_conv = [&](Pass pass, std::vector<Term> inputs) -> Application {
          return {Op::kConv, pass, attribute_words(graph_.attributes, Op::kConv, pass, n.attribute), std::move(inputs)};
        };
        contribute_weight(n.parameters[0], of_conv(Pass::kBackwardWeight, {dy, value(x)}), 0);
        contribute_weight(n.parameters[1], {Op::kLinear, Pass::kBackwardBias, {}, {dy}}, 0);
        return contribute(x, of_conv(Pass::kForward, {dy, value(n.parameters[0]), kNoTerm}), 0);
      }
      case Op::kLinear:
        return linear(n, dy);
      case Op::kDora: {  // the norms count as constants
        contribute_weight(n.parameters[1], {Op::kLinear, Pass::kBackwardBias, {}, {dy}}, 0);
        const Application call =
            application(n, Pass::kBackward, {value(x), value(n.parameters[0]), value(n.outputs[1]), dy});
        contribute_weight(n.parameters[0], call, 1);
        return contribute(x, call, 0);
      }
      case Op::kBatchNorm:
        if (takes_batch_statistics(n)) return normal(n, dy);
        contribute_weight(n.parameters[1], {Op::kLinear, Pass::kBackwardBias, {}, {dy}}, 0);
        return contribute(x, application(n, Pass::kBackwardData, {dy, value(n.buffers[1]), value(n.parameters[0])}), 0);
      case Op::kGroupNorm:
      case Op::kLayerNorm:
        return normal(n, dy);
      case Op::kRmsNorm: {
        const Application call =
            application(n, Pass::kBackward, {value(x), value(n.outputs[1]), value(n.parameters[0]), dy});
        contribute_weight(n.parameters[0], call, 1);
        return contribute(x, call, 0);
      }
      case Op::kRelu:
        return contribute(x, application(n, Pass::kBackward, {value(n.outputs[0]), dy}), 0);
      case Op::kGelu:
      case Op::kUnary: {
        const bool keeps_output = n.op == Op::kUnary && graph_.attributes.of<UnaryAttribute>()[n.attribute].function ==
                                                            static_cast<uint32_t>(UnaryFunction::kRelu6);
        // relu6(relu6(x)) equals relu6(x). So the gradient may also be computed from the output
        // instead of x.
        return contribute(x, application(n, Pass::kBackward, {value(keeps_output ? n.outputs[0] : x), dy}), 0);
      }
      case Op::kSwiglu:
      case Op::kGeglu:
        return contribute_each(n.inputs, application(n, Pass::kBackward, {value(x), value(n.inputs[1]), dy}));
      case Op::kAdd:
        hand_on(x, dy);
        return hand_on(n.inputs[1], dy);
      case Op::kLearned:
        return contribute_weight(n.parameters[0], application(n, Pass::kBackward, {dy}), 0);
      case Op::kLearnedRows:
        return contribute_weight(n.parameters[0], application(n, Pass::kBackward, {value(n.parameters[1]), dy}), 0);
      case Op::kMultiply:  // d(ab) = b da + a db
        contribute(n.inputs[1], application(n, Pass::kBackwardWeight, {dy, value(x)}), 0);
        return contribute(x, application(n, Pass::kBackwardData, {dy, value(n.inputs[1])}), 0);
      case Op::kSoftmax:
        return contribute(x, application(n, Pass::kBackward, {value(n.outputs[0]), dy}), 0);
      case Op::kProduct:
        return product(n, dy);
      case Op::kBroadcastAdd:
        hand_on(x, dy);
        return contribute(n.inputs[1], application(n, Pass::kBackward, {dy}), 0);
      case Op::kReshape:
        if (gradient_.count(x) != 0) return add_copy(x, dy);
        gradient_[x] = terms_.copy(dy, form(x));
        return;
      case Op::kMaxPool:
        return contribute(x, application(n, Pass::kBackward, {value(n.outputs[1]), dy}), 0);
      case Op::kGlobalPool:
        return contribute(x, application(n, Pass::kBackward, {dy, document_start(n)}), 0);
      case Op::kAvgPool:
      case Op::kColumns:
      case Op::kPad:
      case Op::kTranspose:
      case Op::kResize:
      case Op::kDropout:
        return contribute(x, application(n, Pass::kBackward, {dy}), 0);
      case Op::kConcat:
        return concat(n, dy);
      case Op::kRope:
        return contribute_each({x, n.inputs[1], n.inputs[2]},
                               application(n, Pass::kBackward, {dy, document_start(n), value(n.parameters[0])}));
      case Op::kAttention:
        return contribute(x, application(n, Pass::kBackward, {value(x), value(n.outputs[0]), value(n.outputs[1]), dy,
                                                             document_start(n)}),
                          0);
      case Op::kEmbedding: {
        const Application call = application(n, Pass::kBackward, {value(x), dy});
        contribute_weight(n.parameters[0], call, 0);
        return contribute_weight(n.parameters[1], call, 1);
      }
      default:
        throw std::logic_error("expected_terms: no chain rule for " + n.name);
    }
  }

  // Computes the gradients of a norm that uses the mean and the variance of x itself.
  void normal(const Node& n, Term dy) {
    const Application call =
        application(n, Pass::kBackward,
                    {value(n.inputs[0]), value(n.outputs[1]), value(n.outputs[2]), value(n.parameters[0]), dy});
    contribute_weight(n.parameters[0], call, 1);
    contribute_weight(n.parameters[1], call, 2);
    contribute(n.inputs[0], call, 0);
  }

  // Computes the gradients of c = a b: da = dc b^t and db = a^t dc. If a factor is stored
  // transposed, its gradient is computed transposed.
  void product(const Node& n, Term dc) {
    const ProductAttribute& how = graph_.attributes.of<ProductAttribute>()[n.attribute];
    const Term a = value(n.inputs[0]), b = value(n.inputs[1]);
    const auto times = [](Term first, bool first_transposed, Term second, bool second_transposed) {
      const ProductAttribute transposed{first_transposed ? 1u : 0u, second_transposed ? 1u : 0u};
      return Application{Op::kProduct,
                         Pass::kForward,
                         attribute_words(kKernelIndex<ProductForward>, transposed),
                         {first, second}};
    };
    const bool a_transposed = how.transposed_a != 0, b_transposed = how.transposed_b != 0;
    contribute(n.inputs[1], b_transposed ? times(dc, true, a, a_transposed) : times(a, !a_transposed, dc, false), 0);
    contribute(n.inputs[0], a_transposed ? times(b, b_transposed, dc, true) : times(dc, false, b, !b_transposed), 0);
  }

  // Adds the matching box of dy to the gradient of each part. `begin` is the start of the box in
  // each dimension; it advances in the one dimension in which the parts differ from y.
  void concat(const Node& n, Term dy) {
    const Form whole = form(n.outputs[0]);
    const uint32_t rank = graph_.tensor(n.outputs[0]).rank;
    uint32_t begin[kMaxRank] = {};
    for (const ValueId part : n.inputs) {
      const ColumnsAttribute box = {begin[rank - 1], begin[rank - 2], rank > 2 ? begin[rank - 3] : 0};
      contribute(part, {Op::kColumns, Pass::kForward, attribute_words(kKernelIndex<ColumnsForward>, box), {dy}},
                 ColumnsForward::kY);
      for (uint32_t d = 0; d < rank; ++d) begin[d] += form(part).shape[d] == whole.shape[d] ? 0 : form(part).shape[d];
    }
  }

  // Adds output i of the call to the gradient of values[i], for every i.
  void contribute_each(const std::vector<ValueId>& values, const Application& call) {
    for (uint32_t i = 0; i < values.size(); ++i) contribute(values[i], call, i);
  }

  Application scaled(const Node& n, Pass pass, float scale, std::vector<Term> inputs) const {
    Application call = application(n, pass, std::move(inputs));
    const LinearAttribute own = graph_.attributes.of<LinearAttribute>()[n.attribute];
    call.attribute = attribute_words(kernel_index(n.op, pass), LinearAttribute{own.input_major, scale});
    return call;
  }

  // y = x W^T + b + h U^T with h = s x A^T. The adapter's backward gives s dy U, which is stored as
  // the gradient of h. It already contains s, so the later backward of x A^T uses scale 1.
  void linear(const Node& n, Term dy) {
    contribute_weight(n.parameters[0], scaled(n, Pass::kBackwardWeight, 1, {value(n.inputs[0]), dy}), 0);
    contribute_weight(n.parameters[1], application(n, Pass::kBackwardBias, {dy}), 0);
    if (n.inputs.size() == 2) {
      const ValueId h = n.inputs[1], up = n.parameters[2];
      const Node& adapter = made_by(h);
      contribute_weight(up, scaled(adapter, Pass::kBackwardWeight, 1, {value(h), dy}), 0);
      contribute(h, application(adapter, Pass::kBackwardData, {dy, value(up)}), 0);
    }
    contribute(n.inputs[0], scaled(n, Pass::kBackwardData, 1, {dy, value(n.parameters[0])}), 0);
  }
  const Node& made_by(ValueId v) const {
    for (const Node& n : graph_.nodes) {
      if (n.outputs.size() == 1 && n.outputs[0] == v) return n;
    }
    throw std::logic_error("expected_terms: nothing makes " + graph_.values[v].name);
  }

  void loss(const Node& n) {
    const ValueId x = n.inputs[0];
    Term row_weights = kNoTerm;
    if (graph_.pairs != kNoValue) {
      const Application judged = judge_pairs(n, Pass::kBackward, value(x));
      row_weights = terms_.output(judged, 0, row_form(DType::kF32));
      update_scalars(terms_, judged, scalars_);
    }
    const Application call =
        application(n, Pass::kBackward,
                    {value(x), value(n.parameters[0]), value(n.parameters[1]), value(graph_.labels), row_weights});
    contribute_weight(n.parameters[0], call, 1);
    contribute_weight(n.parameters[1], call, 2);
    contribute(x, call, 0);
    update_scalars(terms_, call, scalars_);
  }

  // Returns the inputs of a loss that has no linear layer. Its backward computes both the loss and
  // the gradient. Only a loss of pairs has no weights.
  std::vector<Term> judged_inputs(const Node& n, Term x) const {
    if (n.op == Op::kPairLoss) return {x, value(graph_.labels)};
    return {x, value(graph_.labels), value(n.parameters[0])};
  }

  void judged(const Node& n) {
    const Application call = application(n, Pass::kBackward, judged_inputs(n, value(n.inputs[0])));
    contribute(n.inputs[0], call, 0);
    update_scalars(terms_, call, scalars_);
  }

  // Returns the form of a tensor with one number for each label of the batch.
  Form row_form(DType dtype) const {
    return {dtype, {static_cast<uint32_t>(graph_.tensor(graph_.labels).elements()), 1, 1, 1}};
  }

  // Returns the call that computes a loss of pairs of answers (Rafailov et al. 2023 and later
  // papers). Its inputs are the losses of all labels and the pairs.
  Application judge_pairs(const Node& n, Pass pass, Term x) {
    const Application losses =
        application(n, Pass::kForward, {x, value(n.parameters[0]), value(n.parameters[1]), value(graph_.labels)});
    std::vector<Term> inputs = {terms_.output(losses, 0, row_form(DType::kF64)), value(graph_.pairs)};
    const std::vector<Term> read = scalars_read(Op::kPreference, pass, scalars_);
    inputs.insert(inputs.end(), read.begin(), read.end());
    return {Op::kPreference, pass, attribute_words(graph_.attributes, Op::kPreference, pass, graph_.preference),
            inputs};
  }

  // ---- the optimizer ----

  // The update rule for one parameter, as in the papers (lib/ops/optimizer.h, matrix_update.h).
  // `kept` has the prefix of the name and the form of each tensor that the optimizer keeps.
  struct Rule {
    Op op;
    std::vector<std::pair<std::string, Form>> kept;
    bool joins = false;  // the rule may update several parameters in one row
  };

  Rule rule_of(ValueId p) const {
    const OptimizerRecipe& o = recipe_.optimizer;
    const Tensor& t = graph_.tensor(p);
    const uint32_t rows = t.shape[0], columns = static_cast<uint32_t>(t.elements() / rows);
    const bool is_matrix = t.rank > 1 && rows > 1 && columns > 1;
    Form all = form(p), codes = form(p), squares = form(p);
    const bool small = o.states == DType::kDynamic8 && t.elements() < 4096;
    all.dtype = codes.dtype = squares.dtype = small ? DType::kF32 : o.states;
    if (codes.dtype == DType::kDynamic8) squares.dtype = DType::kDynamic8Square;
    const auto vector = [](uint32_t n) { return Form{DType::kF32, {n, 1, 1, 1}}; };
    if (o.update == Op::kAdafactor && is_matrix)
      return {o.update, {{"row_moment.", vector(rows)}, {"column_moment.", vector(columns)}}};
    if (o.update == Op::kAdafactor) return {o.update, {{"second_moment.", all}}};
    if (o.update == Op::kApollo && is_matrix && std::min(rows, columns) > o.rank) {
      const Form moments = {DType::kF32, {std::max(rows, columns), static_cast<uint32_t>(o.rank), 1, 1}};
      return {o.update, {{"first_moment.", moments}, {"second_moment.", moments}, {"growth.", vector(1)}}};
    }
    if (o.update == Op::kMuon && is_matrix && !is_table(p)) return {o.update, {{"momentum.", codes}}};
    Rule rule = {o.update, {}, t.dtype == DType::kF32 && all.dtype == DType::kF32};
    if (o.update == Op::kApollo || o.update == Op::kMuon) rule.op = Op::kAdamW;
    if (rule.op == Op::kAdamW) rule.kept = {{"first_moment.", codes}, {"second_moment.", squares}};
    if (o.update == Op::kLion || (o.update == Op::kSgd && o.momentum != 0)) rule.kept = {{"momentum.", codes}};
    if (o.update == Op::kSgd && o.momentum == 0) rule.joins = t.dtype == DType::kF32;
    return rule;
  }

  bool is_table(ValueId p) const {
    for (const Node& n : graph_.nodes) {
      const bool reads = std::find(n.parameters.begin(), n.parameters.end(), p) != n.parameters.end();
      if (reads && (n.op == Op::kEmbedding || n.op == Op::kLossHead)) return true;
    }
    return false;
  }

  // Returns the trained parameters in the order of their norms: first the parameters with weight
  // decay, then the others, each in the order of the model.
  std::vector<ValueId> trained() const {
    std::vector<ValueId> list;
    for (const bool decays : {true, false}) {
      for (const auto& [p, gradient] : weight_gradient_) {
        if (graph_.values[p].decays == decays) list.push_back(p);
      }
    }
    return list;
  }

  float rate_of(ValueId p) const {
    const OptimizerRecipe& o = recipe_.optimizer;
    const float own = graph_.values[p].rate;
    if (o.update != Op::kMuon) return own;
    if (rule_of(p).op != Op::kMuon) return own * (o.adamw_lr ? static_cast<float>(*o.adamw_lr / o.lr) : 1.0f);
    const Tensor& t = graph_.tensor(p);
    const double rows = t.shape[0], columns = static_cast<double>(t.elements()) / rows;
    return static_cast<float>(o.matches_adamw ? 0.2 * std::sqrt(std::max(rows, columns))
                                              : std::sqrt(std::max(1.0, rows / columns))) *
           own;
  }

  // Updates the weights. With gradient release, the updates precede the norm, so they use the clip
  // factor that the host has set.
  void update() {
    const ClipAttribute clip = {static_cast<float>(recipe_.clip_norm.value_or(0))};
    Application finish = {Op::kGradNorm, Pass::kFinish, attribute_words(kKernelIndex<GradNormFinish>, clip), {}};
    for (const ValueId p : trained()) {
      step_.norms.push_back(terms_.output({Op::kGradNorm, Pass::kReduce, {}, {weight_gradient_.at(p)}}, 0, kNormForm));
    }
    finish.inputs = step_.norms;
    if (!recipe_.gradient_release) update_scalars(terms_, finish, scalars_);
    uint32_t place = 0;
    for (const ValueId p : trained()) update_parameter(p, place++);
    if (recipe_.gradient_release) update_scalars(terms_, finish, scalars_);
  }

  // Returns the words of the update's attribute. `place` is the parameter's index among the norms.
  // It is also the parameter's random stream, except that the stream is 0 if a row may update
  // several parameters.
  std::vector<uint32_t> constants_of(ValueId p, const Rule& rule, uint32_t place) const {
    const OptimizerRecipe& o = recipe_.optimizer;
    const uint32_t kernel = kernel_index(rule.op, Pass::kUpdate), stream = rule.joins ? 0 : place;
    const float decay = graph_.values[p].decays ? static_cast<float>(o.weight_decay) : 0.0f,
                epsilon = static_cast<float>(o.eps);
    if (rule.op == Op::kAdafactor) {
      return attribute_words(kernel, FactoredAttribute{.group = {},
                                                       .weight_decay = decay,
                                                       .decay_power = o.decay_power,
                                                       .epsilon = epsilon,
                                                       .min_scale = static_cast<float>(o.min_scale),
                                                       .clip = static_cast<float>(o.clip_threshold),
                                                       .adalomo = o.small ? 1u : 0u,
                                                       .rate = rate_of(p),
                                                       .stream = stream});
    }
    if (rule.op == Op::kApollo) {
      return attribute_words(kernel, ProjectedAttribute{.group = {},
                                                        .weight_decay = decay,
                                                        .beta1 = o.beta1,
                                                        .beta2 = o.beta2,
                                                        .epsilon = epsilon,
                                                        .scale = static_cast<float>(o.scale),
                                                        .by_tensor = o.small ? 1u : 0u,
                                                        .period = static_cast<uint32_t>(o.period),
                                                        .rate = rate_of(p),
                                                        .stream = stream});
    }
    return attribute_words(kernel, UpdateAttribute{.group = {},
                                                   .weight_decay = decay,
                                                   .momentum = static_cast<float>(o.momentum),
                                                   .nesterov = o.nesterov ? 1u : 0u,
                                                   .beta1 = o.beta1,
                                                   .beta2 = o.beta2,
                                                   .epsilon = epsilon,
                                                   .rate = rate_of(p),
                                                   .stream = stream});
  }

  void update_parameter(ValueId p, uint32_t place) {
    const Rule rule = rule_of(p);
    Application call = {rule.op, Pass::kUpdate, constants_of(p, rule, place), {value(p)}};
    for (const auto& [prefix, kept] : rule.kept) {
      call.inputs.push_back(state_leaf(terms_, prefix + graph_.values[p].name, kept));
      step_.state[prefix + graph_.values[p].name] = {
          StateKind::kOptimizer, InitKind::kConstant, 0, {}, call.inputs.back(), kNoTerm};
    }
    const bool lacks_one =
        (rule.op == Op::kSgd && rule.kept.empty()) || (rule.op == Op::kAdafactor && rule.kept.size() == 1);
    if (lacks_one) call.inputs.push_back(kNoTerm);
    call.inputs.push_back(weight_gradient_.at(p));
    const std::vector<Term> read = scalars_read(rule.op, Pass::kUpdate, scalars_);
    call.inputs.insert(call.inputs.end(), read.begin(), read.end());
    for (uint32_t m = 0; m < rule.kept.size(); ++m) {
      step_.state[rule.kept[m].first + graph_.values[p].name].after = terms_.output(call, m + 1, rule.kept[m].second);
    }
    lasting_[p] = terms_.output(call, 0, form(p));
  }

  // ---- evaluation: running statistics, no dropout ----

  void evaluate() {
    start_batch(kEvaluationBatch);
    scalars_ = host_scalars(terms_, recipe_.seed, kEvaluationStep);
    for (const Node& n : graph_.nodes) {
      const Term x = value(first_input(n));
      if (n.op == Op::kDropout || n.op == Op::kCopy) {
        value_[n.outputs[0]] = x;
      } else if (n.op == Op::kBatchNorm) {
        value_[n.outputs[0]] = terms_.output(normal_by_running(n), 0, form(n.outputs[0]));
      } else if (n.op == Op::kAttention) {
        Application call = application(n, Pass::kForward, {x, document_start(n)});
        AttentionAttribute silent = graph_.attributes.of<AttentionAttribute>()[n.attribute];
        silent.dropout = 0;
        call.attribute = attribute_words(kKernelIndex<AttentionForward>, silent);
        define(n, call);
      } else if (n.op == Op::kLossHead) {
        const Application call = graph_.pairs != kNoValue ? judge_pairs(n, Pass::kEvaluate, x) :
            application(n, Pass::kEvaluate, {x, value(n.parameters[0]), value(n.parameters[1]), value(graph_.labels)});
        update_scalars(terms_, call, scalars_);
      } else if (is_loss(n.op)) {
        update_scalars(terms_, application(n, Pass::kEvaluate, judged_inputs(n, x)), scalars_);
      } else {
        forward(n);
      }
    }
    step_.evaluated = scalars_;
  }

  const Recipe& recipe_;
  const Graph& graph_;
  TermTable& terms_;
  std::vector<bool> needs_;
  Scalars scalars_;
  std::map<ValueId, Term> lasting_;           // current terms of parameters, buffers and tables
  std::map<ValueId, Term> value_, gradient_;  // values and gradients of one micro-batch
  std::map<ValueId, Term> weight_gradient_;   // sums of the step, or of one micro-batch if the recipe has ranks
  // Weight gradients summed over the step, by rank; empty if the recipe has no ranks. Without the
  // two-level order, entry 0 is the sum of all ranks, and there is no other entry.
  std::map<uint32_t, Gradients> rank_gradient_;
  ExpectedStep step_;
};

}  // namespace

ExpectedStep expected_step(const Graph& network, const Recipe& recipe, TermTable& terms) {
  return Derivation(network, recipe, terms).run();
}

}  // namespace reprise::testing
