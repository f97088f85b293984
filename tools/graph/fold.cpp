// The patterns of fold.h.
// A node that ends a pattern looks back along its inputs.
#include "tools/graph/fold.h"

#include <algorithm>
#include <map>

namespace reprise {

namespace {

class NormFolder {
 public:
  explicit NormFolder(Graph& graph) : graph_(graph) {
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      for (const ValueId v : graph.nodes[i].outputs) producer_[v] = i;
      for (const ValueId v : graph.nodes[i].inputs) readers_[v].push_back(i);
    }
  }

  void run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (graph_.nodes[i].op == Op::kRelu) fold_relu(i);
      if (graph_.nodes[i].op == Op::kBatchNorm) fold_statistics(i);
    }
  }

 private:
  // The node of that op which wrote v, if nobody else than node `reader` reads v and the graph is not cut there.
  size_t only_read_by(ValueId v, Op op, size_t reader) const {
    const auto found = producer_.find(v);
    if (found == producer_.end() || graph_.nodes[found->second].op != op || is_boundary(v)) return kNoNode;
    return readers_.at(v) == std::vector<size_t>{reader} ? found->second : kNoNode;
  }
  bool is_boundary(ValueId v) const { return std::find(graph_.boundaries.begin(), graph_.boundaries.end(), v) != graph_.boundaries.end(); }

  void fold_relu(size_t relu) {
    Node& node = graph_.nodes[relu];
    if (const size_t norm = only_read_by(node.inputs[0], Op::kBatchNorm, relu); norm != kNoNode && only_convolutions_read(node.outputs[0])) {
      node.fold = graph_.nodes[norm].fold = Fold::kIntoConv;
      for (const size_t reader : readers_.at(node.outputs[0])) graph_.nodes[reader].source = norm;
      return;
    }
    const size_t add = only_read_by(node.inputs[0], Op::kAdd, relu);
    if (add == kNoNode) return;
    const size_t norm = only_read_by(graph_.nodes[add].inputs[0], Op::kBatchNorm, add);
    if (norm == kNoNode) return;
    graph_.nodes[norm].fold = Fold::kIntoAdd;
    graph_.nodes[add].fold = Fold::kIntoRelu;
    graph_.nodes[add].source = norm;
    node.source = add;
  }

  void fold_statistics(size_t norm) {
    const ValueId x = graph_.nodes[norm].inputs[0];
    const auto found = producer_.find(x);
    if (found == producer_.end() || is_boundary(x)) return;
    Node& conv = graph_.nodes[found->second];
    if (conv.op != Op::kConv || conv.statistics != kNoNode) return;
    conv.statistics = norm;
    graph_.nodes[norm].statistics = found->second;
    WindowAttribute window = graph_.attributes.of<WindowAttribute>()[conv.attribute];
    window.epsilon = graph_.attributes.of<NormAttribute>()[graph_.nodes[norm].attribute].epsilon;
    conv.attribute = graph_.attributes.intern(window);
  }

  bool only_convolutions_read(ValueId v) const {
    const auto found = readers_.find(v);
    return !is_boundary(v) && found != readers_.end() &&
           std::all_of(found->second.begin(), found->second.end(), [this](size_t i) { return graph_.nodes[i].op == Op::kConv; });
  }

  Graph& graph_;
  std::map<ValueId, size_t> producer_;
  std::map<ValueId, std::vector<size_t>> readers_;
};

}  // namespace

void fold_norms(Graph& graph) { NormFolder(graph).run(); }

}  // namespace reprise
