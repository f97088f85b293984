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

// Finds the values that cross behind each node: those that later nodes read. Of each value its first and last node are known, so that a graph in which every value
// crosses every node takes no more room than another.
class Crossings {
 public:
  explicit Crossings(const Graph& graph) : graph_(graph), born_(graph.values.size(), kNoNode), last_reader_(graph.values.size(), kNoNode) {
    if (graph.input != kNoValue) born_[graph.input] = 0;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      for (const ValueId v : graph.nodes[i].inputs) last_reader_[v] = i;
      for (const ValueId v : graph.nodes[i].outputs) {
        if (v != kNoValue) born_[v] = i;
      }
    }
    std::vector<size_t> begin(graph.nodes.size() + 1), end(graph.nodes.size() + 1);
    for (ValueId v = 0; v < graph.values.size(); ++v) {
      if (born_[v] == kNoNode || last_reader_[v] == kNoNode || last_reader_[v] <= born_[v]) continue;
      ++begin[born_[v]];
      ++end[last_reader_[v]];
    }
    size_t live = 0;
    for (size_t i = 0; i < graph.nodes.size(); ++i) count_.push_back(live += begin[i] - end[i]);
  }

  // How many cross behind node i, beside its main output and what is held; nothing where the main output itself does not cross.
  std::optional<size_t> count_beside(size_t i, const std::set<ValueId>& held) const {
    const std::vector<ValueId>& outputs = graph_.nodes[i].outputs;
    if (outputs.empty() || !crosses(outputs[0], i)) return std::nullopt;
    const auto counts = [&](ValueId v) { return v != outputs[0] && crosses(v, i); };
    return count_[i] - 1 - static_cast<size_t>(std::count_if(held.begin(), held.end(), counts));
  }
  // These.
  std::set<ValueId> beside(size_t i, const std::set<ValueId>& held) const {
    std::set<ValueId> others;
    if (count_beside(i, held).value_or(0) == 0) return others;
    for (ValueId v = 0; v < graph_.values.size(); ++v) {
      if (v != graph_.nodes[i].outputs[0] && crosses(v, i) && held.count(v) == 0) others.insert(v);
    }
    return others;
  }

 private:
  bool crosses(ValueId v, size_t i) const {
    return v != kNoValue && born_[v] != kNoNode && born_[v] <= i && last_reader_[v] != kNoNode && last_reader_[v] > i;
  }

  const Graph& graph_;
  std::vector<size_t> born_, last_reader_;  // of each value; kNoNode: none
  std::vector<size_t> count_;               // of all values that cross behind each node
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
    const auto count = crossings.count_beside(i, held);
    const bool cut = count && *count <= most;
    if (!cut && i + 1 < end) continue;
    const std::set<ValueId> others = crossings.beside(i, held);
    piece.end = i + 1;
    piece.output = count ? node.outputs[0] : kNoValue;
    std::set<ValueId> inside = before;
    inside.insert(others.begin(), others.end());
    if (piece.is_block() && piece.end - piece.first > kMostBlockNodes) {
      append_inside(graph, crossings, piece, inside, pieces);
    } else {
      piece.in_place = !piece.is_block() && works_in_place(graph, node);
      pieces.push_back(piece);
    }
    piece = {.first = i + 1};
    before = held;
    before.insert(others.begin(), others.end());
  }
}

// Cuts a large block where the fewest values cross beside the main output and what is held.
void append_inside(const Graph& graph, const Crossings& crossings, const Piece& block, std::set<ValueId> held, std::vector<Piece>& pieces) {
  held.insert(graph.input);  // every link may read it
  std::optional<size_t> fewest;
  for (size_t i = block.first; i + 1 < block.end; ++i) {
    const auto count = crossings.count_beside(i, held);
    if (count && (!fewest || *count < *fewest)) fewest = count;
  }
  constexpr size_t kMostHeld = 256;  // what a link holds for others; each of them is a step of this recursion at most
  if (!fewest || held.size() > kMostHeld) return pieces.push_back(block);
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
