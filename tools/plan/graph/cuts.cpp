// Implements cuts.h: append_pieces() finds the pieces between possible cuts, and find_cuts() joins
// them into links.
#include "tools/plan/graph/cuts.h"

#include <algorithm>
#include <optional>
#include <set>

#include "lib/assert.h"
#include "tools/plan/graph/rules.h"

namespace reprise {

namespace {

// Nodes [first, end) between two possible cuts.
struct Piece {
  size_t first = 0, end = 0;
  ValueId output = kNoValue;  // the main output of the last node; kNoValue for the last piece
  // Number of nodes without an input (learned parameters). Their outputs never prevent a cut.
  size_t leaves = 0;
  bool in_place = false;  // true if the only node, apart from leaves, may write its output over its input
  bool is_block() const { return end - first - leaves > 1; }
};

bool works_in_place(const Graph& graph, const Node& node) {
  const std::vector<Call> calls = forward_calls(graph, node);
  return std::any_of(calls.begin(), calls.end(), [&node](const Call& call) {
    const KernelInfo& kernel = kernel_info(call.op, call.pass);
    if (kernel.moves) return true;
    return kernel.in_place_output >= 0 &&
           call.arguments[static_cast<size_t>(kernel.in_place_output)] == node.outputs[0] &&
           call.arguments[static_cast<size_t>(kernel.in_place_input)] == node.inputs[0];
  });
}

// Counts, for each node, the values that cross a cut after it. A value crosses if it exists before
// the cut and a later node reads it. For each value only its writer and its last reader are stored,
// so that memory stays small if many values cross many nodes.
class Crossings {
 public:
  explicit Crossings(const Graph& graph)
      : graph_(graph), born_(graph.values.size(), kNoNode), last_reader_(graph.values.size(), kNoNode) {
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

  // Returns how many values cross a cut after node i, not counting its main output and the values
  // in `held` (skips). Returns nothing if the node has no outputs, or if
  // its main output does not cross.
  std::optional<size_t> count_beside(size_t i, const std::set<ValueId>& held) const {
    const std::vector<ValueId>& outputs = graph_.nodes[i].outputs;
    if (outputs.empty() || !crosses(outputs[0], i)) return std::nullopt;
    const auto counts = [&](ValueId v) { return v != outputs[0] && crosses(v, i); };
    return count_[i] - 1 - static_cast<size_t>(std::count_if(held.begin(), held.end(), counts));
  }
  // Returns the last node that reads v; kNoNode for none.
  size_t last_reader(ValueId v) const { return last_reader_[v]; }
  // Returns the values that count_beside() counts.
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
  std::vector<size_t> born_, last_reader_;  // per value: the node that writes it, and its last reader; kNoNode: none
  std::vector<size_t> count_;               // per node: number of values that cross after it
};

void append_inside(const Graph& graph, const Crossings& crossings, const Piece& block, std::set<ValueId> held,
                   std::vector<Piece>& pieces);

// Cuts nodes [first, end) after each node where at most `maximum` values cross, not counting the
// main output and the values in `held`. Appends the pieces. A block of more than kMaxBlockNodes
// nodes is cut further.
void append_pieces(const Graph& graph, const Crossings& crossings, size_t first, size_t end, size_t maximum,
                   const std::set<ValueId>& held, std::vector<Piece>& pieces) {
  Piece piece = {.first = first};
  std::set<ValueId> before = held;  // `held`, and the values that cross at the piece's beginning
  for (size_t i = first; i < end; ++i) {
    const Node& node = graph.nodes[i];
    piece.leaves += node.inputs.empty() ? 1 : 0;
    const auto count = crossings.count_beside(i, held);
    const bool cut = count && *count <= maximum;
    if (!cut && i + 1 < end) continue;
    const std::set<ValueId> others = crossings.beside(i, held);
    piece.end = i + 1;
    piece.output = count ? node.outputs[0] : kNoValue;
    std::set<ValueId> inside = before;
    inside.insert(others.begin(), others.end());
    if (piece.is_block() && piece.end - piece.first > kMaxBlockNodes) {
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

// Cuts a large block where the fewest values cross in addition to the main output and `held`.
// Appends the block undivided if it has no possible cut or too many skips.
void append_inside(const Graph& graph, const Crossings& crossings, const Piece& block, std::set<ValueId> held,
                   std::vector<Piece>& pieces) {
  held.insert(graph.input);  // every link may read it
  std::optional<size_t> fewest;
  for (size_t i = block.first; i + 1 < block.end; ++i) {
    const auto count = crossings.count_beside(i, held);
    if (count && (!fewest || *count < *fewest)) fewest = count;
  }
  // Maximum skips, which also limits the depth of this recursion.
  constexpr size_t kMaxSkips = 256;
  if (!fewest || held.size() > kMaxSkips) return pieces.push_back(block);
  append_pieces(graph, crossings, block.first, block.end, *fewest, held, pieces);
}

}  // namespace

std::vector<ValueId> find_cuts(const Graph& graph, size_t max_values) {
  REPRISE_ASSERT(max_values <= kMaxCandidates, "links are cut for at most kMaxCandidates values");
  std::vector<Piece> pieces;
  const Crossings crossings(graph);
  append_pieces(graph, crossings, 0, graph.nodes.size(), 0, {}, pieces);
  size_t blocks = static_cast<size_t>(
      std::count_if(pieces.begin(), pieces.end(), [](const Piece& piece) { return piece.is_block(); }));
  std::vector<ValueId> cuts;
  size_t values = 0;      // number of values in the current link
  bool has_block = false;
  for (size_t p = 0; p + 1 < pieces.size(); ++p) {
    values += pieces[p].end - pieces[p].first;
    has_block = has_block || pieces[p].is_block();
    blocks -= pieces[p].is_block() ? 1 : 0;
    const Piece& next = pieces[p + 1];
    size_t more = next.output == kNoValue ? 0 : 1;  // number of values that `next` and the in-place pieces after it add
    for (size_t q = p + 2; q < pieces.size() && pieces[q].in_place; ++q) ++more;
    const size_t last_reader = crossings.last_reader(pieces[p].output);
    const bool is_skip = last_reader != kNoNode && last_reader >= next.end;
    if (is_skip && !next.is_block()) continue;
    const bool begins_head = has_block && blocks == 0;
    if (!next.is_block() && (next.in_place || !(begins_head || values + more > max_values))) continue;
    cuts.push_back(pieces[p].output);
    values = 0;
    has_block = false;
  }
  return cuts;
}

}  // namespace reprise
