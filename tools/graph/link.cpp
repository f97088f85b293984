// Cuts the graph into links, solves each distinct one, and says what the schedule sees of them.
// Here because everything the schedule needs to know of a link is decided once, before scheduling.
#include "tools/graph/link.h"

#include <algorithm>
#include <map>
#include <set>

#include "tools/formats/error.h"
#include "tools/graph/held.h"
#include "tools/graph/link_signature.h"
#include "tools/graph/link_solver.h"

namespace reprise {

namespace {

// The nodes of each link, from the boundaries behind the first `dropped`.
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
    if (link.end_node <= link.first_node) throw UserError("a cut: there is nothing between " + graph.values[link.input].name + " and " + link.name + "; give cuts once each, in the order of the nodes");
    first = link.end_node;
    input = link.output;
    links.push_back(link);
  }
  return links;
}

// Below the first trainable value nothing is recorded: all of it is one link, which keeps only its output. Answers how many boundaries that drops.
size_t frozen_boundaries(const Graph& graph, const BackwardBuilder& builder) {
  size_t frozen = 0;
  while (frozen < graph.boundaries.size() && !builder.needs_gradient(graph.boundaries[frozen])) ++frozen;
  return frozen > 1 ? frozen - 1 : 0;
}

// What is equal in many links is solved once.
struct SolvedLink {
  LinkSolver solver;
  size_t links = 0;  // of this signature
};

// Prices per byte between one at which some link's choice of residue changes and the next, the dearest first.
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

// Few modes shall serve all links: each is the price that offers the most links a residue which no mode before offers them.
std::vector<double> mode_prices(const std::map<size_t, SolvedLink>& solved) {
  constexpr size_t kMostModes = 5;
  const std::vector<double> prices = prices_that_differ(solved);
  std::set<std::pair<size_t, size_t>> offered;  // link, its residue
  for (const auto& [i, link] : solved) offered.insert({i, 0});  // nothing kept needs no mode
  std::vector<double> modes;
  while (modes.size() < kMostModes) {
    size_t most = 0;
    double best = 0;
    for (const double price : prices) {
      size_t links = 0;
      for (const auto& [i, link] : solved) links += offered.count({i, link.solver.residue_at(price)}) == 0 ? link.links : 0;
      if (links > most) most = links, best = price;
    }
    if (most == 0) break;
    modes.push_back(best);
    for (const auto& [i, link] : solved) offered.insert({i, link.solver.residue_at(best)});
  }
  return modes;
}

// A value in both counts once.
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
  if (graph.nodes.empty() || !is_loss(graph.nodes.back().op)) throw UserError("the graph has no loss; its last node must be one");
  ChainBodies chain;
  BackwardBuilder builder(graph);
  chain.links = split_nodes(graph, frozen_boundaries(graph, builder));
  mark_held(graph, chain.links);
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
    if (link.output != kNoValue && d_output == kNoValue && !builder.holds_gradients()) continue;  // nothing trainable at or below this link
    BackwardBuilder::Range range = builder.build(link.first_node, link.end_node, link.input, link.output, d_output);
    link.backward = std::move(range.calls);
    link.d_input = range.d_input;
    d_output = range.d_input;
  }
  chain.weight_gradients.assign(graph.values.size(), kNoValue);
  for (const auto& [parameter, gradient] : builder.weight_gradients()) chain.weight_gradients[parameter] = gradient;
  return chain;
}

void solve_links(const Graph& graph, std::vector<LinkBody>& links, const BackendRules& rules, const CallPrice& price, const KeepRule& keep) {
  for (LinkBody& link : links) run_held_once(graph, link);
  std::map<std::string, size_t> first_of;
  std::vector<std::vector<ValueId>> orders(links.size());
  std::vector<size_t> same_as(links.size());
  std::map<size_t, SolvedLink> solved;  // by the first link of its signature
  for (size_t i = 0; i < links.size(); ++i) {
    orders[i] = appearing_values(links[i]);
    const auto [found, is_new] = first_of.emplace(signature_of(graph, links[i], orders[i]), i);
    same_as[i] = found->second;
    if (is_new) solved.emplace(i, SolvedLink{LinkSolver(graph, links[i], rules, price)}).first->second.solver.solve(keep);
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
  return static_cast<size_t>(std::count_if(links.begin(), links.end(), [](const LinkBody& link) { return link.truncated; }));
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
    for (const TapeChoice& tape : body.tapes) {
      link.tapes.push_back({tape.bytes, tape.backward_price, tape.backward.scratch_bytes, tape.forward_scratch_bytes});
    }
    for (const ResidueChoice& residue : body.residues) {
      link.residues.push_back({residue.bytes, residue.forward_price, residue.record_prices});
      for (const TapeChoice& tape : body.tapes) link.residues.back().tape_bytes.push_back(bytes_together(graph, tape, residue));
    }
    chain.links.push_back(link);
  }
  return chain;
}

}  // namespace reprise
