// The calls of each op in forward, evaluation and backward. rules.cpp has the rules of all ops. A
// rule also states the forward values that the op's backward reads. The rules must not depend on
// what is kept or recomputed.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "tools/plan/graph/graph.h"

namespace reprise {

std::vector<Call> forward_calls(const Graph& graph, const Node& node);

// Returns the call that a later forward of the link runs instead of `call`. It omits the outputs
// that only the first forward writes. Returns nothing if no output is left.
std::optional<Call> repeated(const Call& call);

// Returns the calls of the whole network in evaluation: running statistics, no dropout. Adds the
// values and attributes that the calls need to the graph.
std::vector<Call> evaluation_calls(Graph& graph);

// Returns the first node that may make a position of [B,T] tokens depend on a later one: an
// attention that is not causal, or an op that mixes positions; null for none. With such a node a
// language model would learn a token from itself, and generation could not cache positions.
const Node* node_that_sees_ahead(const Graph& graph);

// Calls that generate text, for a graph with one sequence of P tokens. They differ from evaluation
// in two ways: attention reads caches of `positions` keys and values, and the logits of all P
// tokens replace the loss. generation_calls() adds the values and attributes that the calls need to
// the graph. One of them is document_start, from which rope and attention get the positions of the
// tokens. Throws UserError that names the node if a node sees ahead.
struct GenerationCalls {
  std::vector<Call> calls;
  std::vector<ValueId> caches;
  ValueId logits = kNoValue;
};
GenerationCalls generation_calls(Graph& graph, uint32_t positions);

// Builds backward calls node by node, the last node first. The order in which gradients are added
// therefore depends on the graph alone.
class BackwardBuilder {
 public:
  explicit BackwardBuilder(Graph& graph);

  // Builds the backward of nodes [first, end) from `d_output`, the gradient of `output`, which it
  // only reads. Both are kNoValue for the range with the loss. Ranges must be built from the last
  // to the first. If an earlier range needs the gradient of `input`, that gradient is a value of
  // its own, `d_input`. The gradient of a skip is also a value of its own. Each range that reads
  // the skip adds to it, until the range that writes the skip uses it.
  struct Range {
    std::vector<Call> calls;
    ValueId d_input = kNoValue;
  };
  Range build(size_t first, size_t end, ValueId input, ValueId output, ValueId d_output);

  bool needs_gradient(ValueId v) const { return needs_gradient_[v]; }
  // True if a range that is not yet built gets the gradient of a skip, in addition to that of its
  // output.
  bool holds_gradients() const { return !skip_gradients_.empty(); }
  // Returns the weight gradient of each parameter that has one.
  const std::map<ValueId, ValueId>& weight_gradients() const { return weight_gradients_; }

 private:
  void differentiate(const Node& node, ValueId dy);
  void convolution(const Node& node, ValueId dy);
  void multiply(const Node& node, ValueId dy);
  void product(const Node& node, ValueId dc);
  void transposed_convolution(const Node& node, ValueId dy);
  void bias_gradient(ValueId parameter, ValueId dy);
  void linear(const Node& node, ValueId dy);
  void adapter(const Node& node, ValueId dy);
  void dora(const Node& node, ValueId dy);
  void concat(const Node& node, ValueId dy);
  void normalisation(const Node& node, ValueId dy);
  void running_batch_norm(const Node& node, ValueId dy);
  void loss(const Node& node);
  ValueId row_weights(const Node& node);
  ValueId fresh_gradient(ValueId v);
  void own_gradient(ValueId v, std::set<ValueId>& owned);
  void hold_gradients(std::set<ValueId>& owned);
  void write(ValueId v, Call call, uint32_t output, bool can_accumulate);
  void write_each(const std::vector<ValueId>& values, Call call);
  void pass_on(ValueId v, ValueId dy);
  ValueId weight_gradient(ValueId parameter, Call& call, uint32_t output);

  Graph& graph_;
  std::vector<bool> needs_gradient_;
  std::map<ValueId, ValueId> weight_gradients_;
  std::map<ValueId, ValueId> skip_gradients_;  // gradients of skips that a built range reads and none writes, by skip
  // State of the range being built.
  std::vector<Call> calls_;
  std::map<ValueId, ValueId> gradient_;  // the gradient of each forward value
  std::map<ValueId, int> holders_;       // per gradient: the number of forward values that still share the gradient
  ValueId d_output_ = kNoValue;
};

}  // namespace reprise
