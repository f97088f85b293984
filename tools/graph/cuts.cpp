// The rule of cuts.h: one walk finds the pieces between possible cuts, a second joins them to links.
#include "tools/graph/cuts.h"

#include <algorithm>
#include <optional>
#include <set>

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

// What crosses behind each node: values that later nodes read.
class Crossings {
 public:
  explicit Crossings(const Graph& graph) : graph_(graph), crossing_(graph.nodes.size()) {
    std::vector<size_t> last_reader(graph.values.size(), kNoNode);
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      for (const ValueId v : graph.nodes[i].inputs) last_reader[v] = i;
    }
    std::set<ValueId> live = {graph.input};
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      live.insert(graph.nodes[i].outputs.begin(), graph.nodes[i].outputs.end());
      std::erase_if(live, [&](ValueId v) { return v == kNoValue || last_reader[v] == kNoNode || last_reader[v] <= i; });
      crossing_[i] = live;
    }
  }

  // Behind node i, beside its main output and what is held; nothing where the main output itself does not cross.
  std::optional<std::set<ValueId>> beside(size_t i, const std::set<ValueId>& held) const {
    const std::vector<ValueId>& outputs = graph_.nodes[i].outputs;
    if (outputs.empty() || crossing_[i].count(outputs[0]) == 0) return std::nullopt;
    std::set<ValueId> others = crossing_[i];
    others.erase(outputs[0]);
    for (const ValueId v : held) others.erase(v);
    return others;
  }

 private:
  const Graph& graph_;
  std::vector<std::set<ValueId>> crossing_;
};

void append_inside(const Graph& graph, const Crossings& crossings, const Piece& block, std::set<ValueId> held, std::vector<Piece>& pieces);

// Appends the pieces of nodes [first, end) between cuts that at most `most` values cross beside the main output and what is held.
void append_pieces(const Graph& graph, const Crossings& crossings, size_t first, size_t end, size_t most, const std::set<ValueId>& held,
                   std::vector<Piece>& pieces) {
  Piece piece = {.first = first};
  std::set<ValueId> before = held;  // at the piece's beginning
  for (size_t i = first; i < end; ++i) {
    const Node& node = graph.nodes[i];
    piece.leaves += node.inputs.empty() ? 1 : 0;
    const auto others = crossings.beside(i, held);
    const bool cut = others && others->size() <= most;
    if (!cut && i + 1 < end) continue;
    piece.end = i + 1;
    piece.output = others ? node.outputs[0] : kNoValue;
    std::set<ValueId> inside = before;
    if (others) inside.insert(others->begin(), others->end());
    if (piece.is_block() && piece.end - piece.first > kMostBlockNodes) {
      append_inside(graph, crossings, piece, inside, pieces);
    } else {
      piece.in_place = !piece.is_block() && works_in_place(graph, node);
      pieces.push_back(piece);
    }
    piece = {.first = i + 1};
    before = held;
    if (others) before.insert(others->begin(), others->end());
  }
}

// Cuts a large block where the fewest values cross beside the main output and what is held.
void append_inside(const Graph& graph, const Crossings& crossings, const Piece& block, std::set<ValueId> held, std::vector<Piece>& pieces) {
  held.insert(graph.input);  // every link may read it
  std::optional<size_t> fewest;
  for (size_t i = block.first; i + 1 < block.end; ++i) {
    const auto others = crossings.beside(i, held);
    if (others && (!fewest || others->size() < *fewest)) fewest = others->size();
  }
  if (!fewest) return pieces.push_back(block);
  append_pieces(graph, crossings, block.first, block.end, *fewest, held, pieces);
}

}  // namespace

std::vector<ValueId> find_cuts(const Graph& graph, size_t most_values) {
  std::vector<Piece> pieces;
  append_pieces(graph, Crossings(graph), 0, graph.nodes.size(), 0, {}, pieces);
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
    if (!next.is_block() && (next.in_place || !(begins_head || values + more > most_values))) continue;
    cuts.push_back(pieces[p].output);
    values = 0;
    has_block = false;
  }
  return cuts;
}

}  // namespace reprise
