// What each op calls forward, in evaluation and backward.
// Here so that every op's rule stands in one place and says which forward values its backward reads.
// It must not know what will be kept or recomputed.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "tools/graph/graph.h"

namespace reprise {

std::vector<Call> forward_calls(const Graph& graph, const Node& node);

// What a later forward of the link calls in place of one of these: without the outputs that only the first one writes; nothing where
// that leaves none.
std::optional<Call> repeated(const Call& call);

// The whole network in evaluation: running statistics, no dropout. Appends what values and attributes it needs.
std::vector<Call> evaluation_calls(Graph& graph);

// The first node by which a position of [B,T] tokens may read a later one, an attention that is not causal, or an op that does not keep positions
// apart; null for none. A language model would learn a token from itself, and text is generated position by position: what is cached of one stays.
const Node* node_that_sees_ahead(const Graph& graph);

// The network for generation, of a graph with one sequence of P tokens: as in evaluation, but attention reads caches of `positions` keys and
// values, and the logits of all P tokens stand where the loss was. Appends what values and attributes it needs, the starts of documents too
// where the graph has none: they are what tells rows their positions. A graph of which a
// node sees ahead is refused by its name.
struct GenerationCalls {
  std::vector<Call> calls;
  std::vector<ValueId> caches;
  ValueId logits = kNoValue;
};
GenerationCalls generation_calls(Graph& graph, uint32_t positions);

// Builds backward calls node by node, last node first. Accumulation order is the order of the nodes: a property of the graph.
class BackwardBuilder {
 public:
  explicit BackwardBuilder(Graph& graph);

  // Backward of nodes [first, end), given the gradient of `output` (kNoValue for the loss). That gradient is only read, never
  // overwritten; the gradient of `input`, if anything below wants one, is a value of its own. Ranges go last to first. The gradient of a held value
  // is a value of its own, too, to which each range that reads the held value adds, until the range that wrote it.
  struct Range {
    std::vector<Call> calls;
    ValueId d_input = kNoValue;
  };
  Range build(size_t first, size_t end, ValueId input, ValueId output, ValueId d_output);

  bool needs_gradient(ValueId v) const { return needs_gradient_[v]; }
  // Whether a range to come gets a gradient beside that of its output.
  bool holds_gradients() const { return !held_gradients_.empty(); }
  // The weight gradient of each parameter that has one.
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
  std::map<ValueId, ValueId> held_gradients_;  // of held values that ranges so far have read and none has written
  // State of the range being built.
  std::vector<Call> calls_;
  std::map<ValueId, ValueId> gradient_;  // of a forward value
  std::map<ValueId, int> holders_;       // forward values that still share a gradient
  ValueId d_output_ = kNoValue;
};

}  // namespace reprise
