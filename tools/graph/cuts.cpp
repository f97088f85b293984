// The rule of cuts.h: one walk finds the pieces between possible cuts, a second joins them to links.
#include "tools/graph/cuts.h"

#include <algorithm>

#include "tools/graph/link.h"
#include "tools/graph/rules.h"

namespace reprise {

namespace {

// Nodes [first, end) between two possible cuts.
struct Piece {
  size_t first = 0, end = 0;
  ValueId output = kNoValue;  // what crosses behind it; kNoValue behind the last one
  size_t leaves = 0;      // nodes without an input: what they write is nobody's way
  bool in_place = false;  // one node, beside leaves, that may write its output where its input lies
  bool is_block() const { return end - first - leaves > 1; }
};

bool works_in_place(const Graph& graph, const Node& node) {
  const std::vector<Call> calls = forward_calls(graph, node);
  return std::any_of(calls.begin(), calls.end(), [&node](const Call& call) {
    const KernelInfo& kernel = kernel_info(call.op, call.pass);
    if (kernel.moves) return true;
    return kernel.in_place_output >= 0 && call.arguments[static_cast<size_t>(kernel.in_place_output)] == node.outputs[0] &&
           call.arguments[static_cast<size_t>(kernel.in_place_input)] == node.inputs[0];
  });
}

std::vector<Piece> pieces_of(const Graph& graph) {
  std::vector<size_t> last_reader(graph.values.size(), kNoNode);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const ValueId v : graph.nodes[i].inputs) last_reader[v] = i;
  }
  std::vector<size_t> dying(graph.nodes.size(), 0);  // how many values each node is the last to read, of those that can cross a cut
  size_t live = 0;
  const auto is_born = [&](ValueId v) {
    if (last_reader[v] == kNoNode) return;
    ++live;
    ++dying[last_reader[v]];
  };
  if (graph.input != kNoValue) is_born(graph.input);
  std::vector<Piece> pieces;
  Piece piece = {};
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    piece.leaves += node.inputs.empty() ? 1 : 0;
    live -= dying[i];
    for (const ValueId v : node.outputs) is_born(v);
    const bool crosses = live == 1 && !node.outputs.empty() && last_reader[node.outputs[0]] != kNoNode;
    if (!crosses && i + 1 < graph.nodes.size()) continue;
    piece.end = i + 1;
    piece.output = crosses ? node.outputs[0] : kNoValue;
    piece.in_place = !piece.is_block() && works_in_place(graph, node);
    pieces.push_back(piece);
    piece = {.first = i + 1};
  }
  return pieces;
}

}  // namespace

std::vector<ValueId> find_cuts(const Graph& graph) {
  const std::vector<Piece> pieces = pieces_of(graph);
  size_t blocks = static_cast<size_t>(std::count_if(pieces.begin(), pieces.end(), [](const Piece& piece) { return piece.is_block(); }));
  std::vector<ValueId> cuts;
  size_t values = 0;      // of the link being joined
  bool has_block = false;
  for (size_t p = 0; p + 1 < pieces.size(); ++p) {
    values += pieces[p].end - pieces[p].first;
    has_block = has_block || pieces[p].is_block();
    blocks -= pieces[p].is_block() ? 1 : 0;
    const Piece& next = pieces[p + 1];
    size_t more = next.output == kNoValue ? 0 : 1;  // what `next` brings, with what is computed in place behind it
    for (size_t q = p + 2; q < pieces.size() && pieces[q].in_place; ++q) ++more;
    const bool begins_head = has_block && blocks == 0;
    if (!next.is_block() && (next.in_place || !(begins_head || values + more > kMostCandidates))) continue;
    cuts.push_back(pieces[p].output);
    values = 0;
    has_block = false;
  }
  return cuts;
}

}  // namespace reprise
