// Cuts the graph into links, solves each distinct one, and makes the schedule's input from them.
// Everything that the schedule needs of a link is decided once, before scheduling.
#include "tools/plan/graph/link.h"

#include <algorithm>
#include <map>
#include <set>

#include "lib/assert.h"
#include "tools/files/io/error.h"
#include "tools/plan/graph/skips.h"
#include "tools/plan/graph/link_signature.h"
#include "tools/plan/graph/link_solver.h"

namespace reprise {

namespace {

// Asserts the order of nodes on which cuts, skips and the backward rely.
void assert_order(const Graph& graph) {
  std::vector<bool> is_written(graph.values.size(), false);
  for (const Node& node : graph.nodes) {
    for (const ValueId v : node.inputs) {
      [[maybe_unused]] const bool is_made_here =
          v < graph.values.size() &&
          (graph.values[v].kind == ValueKind::kActivation || graph.values[v].kind == ValueKind::kSkip);
      REPRISE_ASSERT(v < graph.values.size() && (!is_made_here || is_written[v]),
                     "a node reads values of its graph, which earlier nodes write");
    }
    for (const ValueId v : node.outputs) {
      if (v == kNoValue) continue;
      REPRISE_ASSERT(v < graph.values.size() && !is_written[v], "one node writes a value");
      is_written[v] = true;
    }
  }
}

// Returns the links with their nodes, inputs and outputs. The first `dropped` boundaries are not
// used as cuts.
std::vector<LinkBody> split_nodes(const Graph& graph, size_t dropped) {
  std::map<ValueId, size_t> producer;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const ValueId v : graph.nodes[i].outputs) producer[v] = i;
  }
  std::vector<LinkBody> links;
  size_t first = 0;
  ValueId input = graph.input;
  for (size_t b = dropped; b <= graph.boundaries.size(); ++b) {
    LinkBody link;
    const bool last = b == graph.boundaries.size();
    link.first_node = first;
    link.end_node = last ? graph.nodes.size() : producer.at(graph.boundaries[b]) + 1;
    link.input = input;
    link.output = last ? kNoValue : graph.boundaries[b];
    link.name = last ? "head" : graph.values[link.output].name;
    if (link.end_node <= link.first_node)
      throw UserError("a cut: there is nothing between " + graph.values[link.input].name + " and " + link.name +
                      "; give cuts once each, in the order of the nodes");
    first = link.end_node;
    input = link.output;
    links.push_back(link);
  }
  return links;
}

// Returns how many boundaries to drop. The nodes before the first trainable parameter become one
// link, which keeps only its output, because no backward reads their values.
size_t frozen_boundaries(const Graph& graph, const BackwardBuilder& builder) {
  size_t frozen = 0;
  while (frozen < graph.boundaries.size() && !builder.needs_gradient(graph.boundaries[frozen])) ++frozen;
  return frozen > 1 ? frozen - 1 : 0;
}

// The solver of the first link of a signature. Its solution is copied to the other links of that
// signature.
struct SolvedLink {
  LinkSolver solver;
  size_t links = 0;  // number of links with this signature
};

// Returns prices per byte, the highest first. The prices at which some link's choice of residue
// changes divide all prices into intervals. The result has one price from each interval, except the
// interval above the highest of these prices.
std::vector<double> prices_that_differ(const std::map<size_t, SolvedLink>& solved) {
  std::set<double, std::greater<>> changes;
  for (const auto& [i, link] : solved) {
    for (const double change : link.solver.residue_prices()) changes.insert(change);
  }
  std::vector<double> prices;
  for (auto change = changes.begin(); change != changes.end(); ++change) {
    const auto next = std::next(change);
    prices.push_back(next == changes.end() ? *change / 2 : (*change + *next) / 2);
  }
  return prices;
}

// Chooses a few modes for all links. Each mode is the price at which the largest number of links
// get a residue that no earlier mode offers them.
std::vector<double> mode_prices(const std::map<size_t, SolvedLink>& solved) {
  constexpr size_t kMaxModes = 5;
  const std::vector<double> prices = prices_that_differ(solved);
  std::set<std::pair<size_t, size_t>> offered;  // pairs (link, index of a residue) that a mode already offers
  for (const auto& [i, link] : solved) offered.insert({i, 0});  // keeping nothing needs no mode
  std::vector<double> modes;
  while (modes.size() < kMaxModes) {
    size_t maximum = 0;
    double best = 0;
    for (const double price : prices) {
      size_t links = 0;
      for (const auto& [i, link] : solved)
        links += offered.count({i, link.solver.residue_at(price)}) == 0 ? link.links : 0;
      if (links > maximum) maximum = links, best = price;
    }
    if (maximum == 0) break;
    modes.push_back(best);
    for (const auto& [i, link] : solved) offered.insert({i, link.solver.residue_at(best)});
  }
  return modes;
}

// Returns the bytes of a tape and a residue together; a value in both counts once.
uint64_t bytes_together(const Graph& graph, const TapeChoice& tape, const ResidueChoice& residue) {
  uint64_t bytes = tape.bytes;
  for (const ValueId v : residue.kept) {
    if (std::find(tape.kept.begin(), tape.kept.end(), v) == tape.kept.end()) bytes += graph.tensor(v).bytes;
  }
  return bytes;
}

}  // namespace

ChainBodies cut_into_links(Graph& graph) {
  if (graph.input == kNoValue) throw UserError("the graph has no input; name the value that the host fills");
  if (graph.nodes.empty() || !is_loss(graph.nodes.back().op))
    throw UserError("the graph has no loss; its last node must be one");
  assert_order(graph);
  ChainBodies chain;
  BackwardBuilder builder(graph);
  chain.links = split_nodes(graph, frozen_boundaries(graph, builder));
  mark_skips(graph, chain.links);
  const size_t count = chain.links.size();
  for (size_t i = 0; i < count; ++i) {
    LinkBody& link = chain.links[i];
    for (size_t n = link.first_node; n < link.end_node; ++n) {
      for (Call& call : forward_calls(graph, graph.nodes[n])) link.forward.push_back(std::move(call));
    }
  }
  ValueId d_output = kNoValue;
  for (size_t i = count; i-- > 0;) {
    LinkBody& link = chain.links[i];
    link.d_output = d_output;
    // Nothing is trainable in this link or before it.
    if (link.output != kNoValue && d_output == kNoValue && !builder.holds_gradients()) continue;
    BackwardBuilder::Range range = builder.build(link.first_node, link.end_node, link.input, link.output, d_output);
    link.backward = std::move(range.calls);
    link.d_input = range.d_input;
    d_output = range.d_input;
  }
  chain.weight_gradients.assign(graph.values.size(), kNoValue);
  for (const auto& [parameter, gradient] : builder.weight_gradients()) chain.weight_gradients[parameter] = gradient;
  return chain;
}

void solve_links(const Graph& graph, std::vector<LinkBody>& links, const BackendRules& rules, const CallPrice& price,
                 const KeepRule& keep) {
  for (LinkBody& link : links) run_skips_once(graph, link);
  std::map<std::string, size_t> first_of;
  std::vector<std::vector<ValueId>> orders(links.size());
  std::vector<size_t> same_as(links.size());
  std::map<size_t, SolvedLink> solved;  // key: index of the first link of each signature
  for (size_t i = 0; i < links.size(); ++i) {
    orders[i] = appearing_values(links[i]);
    const auto [found, is_new] = first_of.emplace(signature_of(graph, links[i], orders[i]), i);
    same_as[i] = found->second;
    if (is_new)
      solved.emplace(i, SolvedLink{LinkSolver(graph, links[i], rules, price)}).first->second.solver.solve(keep);
    ++solved.at(same_as[i]).links;
  }
  for (const double mode : mode_prices(solved)) {
    for (auto& [i, link] : solved) link.solver.add_mode(mode);
  }
  for (size_t i = 0; i < links.size(); ++i) {
    if (same_as[i] != i) transfer_solution(links[same_as[i]], links[i], orders[same_as[i]], orders[i]);
  }
}

size_t truncated_links(const std::vector<LinkBody>& links) {
  return static_cast<size_t>(
      std::count_if(links.begin(), links.end(), [](const LinkBody& link) { return link.truncated; }));
}

Chain chain_of(const Graph& graph, const std::vector<LinkBody>& links) {
  Chain chain;
  chain.input_bytes = graph.tensor(graph.input).bytes;
  for (const LinkBody& body : links) {
    Link link;
    link.name = body.name;
    link.forward_cost = body.forward_price;
    link.boundary_bytes = boundary_bytes(graph, body.output);
    link.forward_scratch_bytes = body.forward_scratch_bytes;
    REPRISE_ASSERT(!body.tapes.empty(), "a link has a tape");
    for (const TapeChoice& tape : body.tapes) {
      REPRISE_ASSERT(link.tapes.empty() || tape.bytes <= link.tapes.back().bytes,
                     "a link's front begins with the largest tape, and bytes do not grow");
      link.tapes.push_back({tape.bytes, tape.backward_price, tape.backward.scratch_bytes, tape.forward_scratch_bytes});
    }
    for (const ResidueChoice& residue : body.residues) {
      REPRISE_ASSERT(residue.record_prices.size() == body.tapes.size(), "a residue has a price for each tape");
      link.residues.push_back({residue.bytes, residue.forward_price, residue.record_prices});
      for (const TapeChoice& tape : body.tapes)
        link.residues.back().tape_bytes.push_back(bytes_together(graph, tape, residue));
    }
    chain.links.push_back(link);
  }
  return chain;
}

}  // namespace reprise
