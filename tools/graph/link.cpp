// Cuts the graph into links and solves each distinct link: price, scratch, front of tapes.
// Here because everything the schedule needs to know of a link is decided once, before scheduling.
// It must not know budgets.
#include "tools/graph/link.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>

#include "tools/graph/cost.h"

namespace reprise {

namespace {

bool is_activation(const Graph& graph, ValueId v) { return v != kNoValue && graph.values[v].kind == ValueKind::kActivation; }

// The nodes of each link, from the boundaries.
std::vector<LinkBody> split_nodes(const Graph& graph) {
  std::map<ValueId, size_t> producer;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const ValueId v : graph.nodes[i].outputs) producer[v] = i;
  }
  std::vector<LinkBody> links;
  size_t first = 0;
  ValueId input = graph.input;
  for (size_t b = 0; b <= graph.boundaries.size(); ++b) {
    LinkBody link;
    const bool last = b == graph.boundaries.size();
    link.first_node = first;
    link.end_node = last ? graph.nodes.size() : producer.at(graph.boundaries[b]) + 1;
    link.input = input;
    link.output = last ? kNoValue : graph.boundaries[b];
    link.name = last ? "head" : graph.values[link.output].name;
    if (link.end_node <= link.first_node) throw std::logic_error("empty link at " + link.name);
    first = link.end_node;
    input = link.output;
    links.push_back(link);
  }
  return links;
}

// Below the first trainable value nothing is recorded: all of it is one link, which keeps only its output.
void drop_frozen_boundaries(Graph& graph, const BackwardBuilder& builder) {
  size_t frozen = 0;
  while (frozen < graph.boundaries.size() && !builder.needs_gradient(graph.boundaries[frozen])) ++frozen;
  if (frozen > 1) graph.boundaries.erase(graph.boundaries.begin(), graph.boundaries.begin() + static_cast<std::ptrdiff_t>(frozen) - 1);
}

void check_cut(const Graph& graph, const LinkBody& link) {
  std::set<ValueId> known = {link.input};
  for (size_t i = link.first_node; i < link.end_node; ++i) {
    const Node& node = graph.nodes[i];
    for (const ValueId v : node.inputs) {
      if (known.count(v) == 0) throw std::logic_error("value " + graph.values[v].name + " crosses into link " + link.name);
    }
    known.insert(node.outputs.begin(), node.outputs.end());
  }
}

// Enumerates what one link may keep.
class LinkSolver {
 public:
  LinkSolver(const Graph& graph, LinkBody& link, ScratchBytes scratch, const CallPrice& price)
      : graph_(graph), link_(link), scratch_(scratch), price_(price) {
    for (size_t i = 0; i < link.forward.size(); ++i) {
      const Call& call = link.forward[i];
      const KernelInfo& kernel = kOps[kernel_index(call.op, call.pass)];
      for (size_t a = 0; a < call.arguments.size(); ++a) {
        const ValueId v = call.arguments[a];
        if (!is_activation(graph, v) || v == link.input) continue;
        if (kernel.arguments[a].role == Role::kOutput) {
          producer_[v] = i;
          inner_order_.push_back(v);
        } else {
          consumers_[v].push_back(i);
        }
      }
    }
  }

  void solve() {
    link_.forward_price = 0;
    for (const Call& call : link_.forward) {
      if (!call.once) link_.forward_price += price_(graph_, call);
    }
    link_.advance = arrange_calls(graph_, link_.forward, placed_outside({}), scratch_);
    std::vector<ValueId> always;
    std::vector<ValueId> candidates = find_candidates(always);
    std::vector<TapeChoice> all;
    for (uint32_t mask = 0; mask < 1u << candidates.size(); ++mask) {
      std::vector<ValueId> kept = always;
      for (size_t c = 0; c < candidates.size(); ++c) {
        if ((mask >> c & 1u) != 0) kept.push_back(candidates[c]);
      }
      all.push_back(tape_of(kept));
    }
    link_.tapes = pareto_front(std::move(all));
    link_.forward_scratch_bytes = link_.advance.scratch_bytes;
    find_residues();
  }

  // Prices per byte at which this link's choice of residue changes.
  std::vector<double> residue_prices() const {
    std::vector<double> prices;
    for (size_t i = 1; i < residues_.size(); ++i) {
      prices.push_back((residues_[i - 1].forward_price - residues_[i].forward_price) / static_cast<double>(residues_[i].bytes - residues_[i - 1].bytes));
    }
    return prices;
  }

  // Appends the mode of that price.
  void add_mode(double price_per_byte) {
    const auto total = [price_per_byte](const ResidueSet& set) { return set.forward_price + price_per_byte * static_cast<double>(set.bytes); };
    const ResidueSet* best = &residues_.front();
    for (const ResidueSet& set : residues_) {
      if (total(set) < total(*best)) best = &set;
    }
    ResidueChoice mode;
    mode.kept = best->kept;
    mode.bytes = best->bytes;
    mode.forward_price = best->forward_price;
    mode.lay = arrange_calls(graph_, link_.forward, placed_outside(mode.kept), scratch_);
    mode.held = arrange_calls(graph_, forward_with(mode.kept, {}), placed_outside(mode.kept), scratch_);
    link_.forward_scratch_bytes = std::max({link_.forward_scratch_bytes, mode.lay.scratch_bytes, mode.held.scratch_bytes});
    for (TapeChoice& tape : link_.tapes) {
      std::vector<ValueId> both = tape.kept;
      both.insert(both.end(), mode.kept.begin(), mode.kept.end());
      mode.records.push_back(arrange_calls(graph_, forward_with(mode.kept, tape.kept), placed_outside(both), scratch_));
      tape.forward_scratch_bytes = std::max(tape.forward_scratch_bytes, mode.records.back().scratch_bytes);
    }
    link_.residues.push_back(std::move(mode));
  }

 private:
  struct ResidueSet {
    std::vector<ValueId> kept;
    uint64_t bytes = 0;
    double forward_price = 0;
  };

  // Forward calls that compute the output and `wanted` when `held` is there already.
  std::vector<Call> forward_with(const std::vector<ValueId>& held, const std::vector<ValueId>& wanted) const {
    std::set<ValueId> available(held.begin(), held.end());
    available.insert(link_.input);
    std::vector<Call> calls;
    for (const ValueId v : wanted) recompute(v, available, calls);
    if (link_.output != kNoValue) recompute(link_.output, available, calls);
    return calls;
  }

  // The lower convex hull of (bytes, forward price) over all parts of tapes[0]: a price per byte always picks one of its corners.
  void find_residues() {
    const std::vector<ValueId>& kept = link_.tapes[0].kept;
    const size_t count = link_.output == kNoValue || link_.backward.empty() ? 0 : std::min<size_t>(kept.size(), 12);
    std::vector<ResidueSet> all;
    for (uint32_t mask = 0; mask < 1u << count; ++mask) {
      ResidueSet set;
      for (size_t c = 0; c < count; ++c) {
        if ((mask >> c & 1u) == 0) continue;
        set.kept.push_back(kept[c]);
        set.bytes += graph_.tensor(kept[c]).bytes;
      }
      for (const Call& call : forward_with(set.kept, {})) set.forward_price += price_(graph_, call);
      all.push_back(std::move(set));
    }
    std::stable_sort(all.begin(), all.end(), [](const ResidueSet& a, const ResidueSet& b) {
      return a.bytes != b.bytes ? a.bytes < b.bytes : a.forward_price < b.forward_price;
    });
    const auto slope = [](const ResidueSet& a, const ResidueSet& b) {
      return (a.forward_price - b.forward_price) / static_cast<double>(b.bytes - a.bytes);
    };
    for (ResidueSet& set : all) {
      if (!residues_.empty() && (set.bytes == residues_.back().bytes || set.forward_price >= residues_.back().forward_price)) continue;
      while (residues_.size() > 1 && slope(residues_[residues_.size() - 2], residues_.back()) <= slope(residues_.back(), set)) residues_.pop_back();
      residues_.push_back(std::move(set));
    }
  }

  // Values whose place is not in the scratch block.
  std::vector<ValueId> placed_outside(const std::vector<ValueId>& kept) const {
    std::vector<ValueId> placed = kept;
    for (const ValueId v : {link_.input, link_.output, link_.d_input, link_.d_output}) {
      if (v != kNoValue) placed.push_back(v);
    }
    return placed;
  }

  // Inner values worth keeping: read by the backward, or needed to recompute such a value, unless keeping the only value made
  // from it serves as well for no more bytes (a ReLU output is its own mask). Past kMaxCandidates the smallest are always kept.
  std::vector<ValueId> find_candidates(std::vector<ValueId>& always) const {
    std::set<ValueId> direct, closure;
    std::vector<ValueId> stack;
    for (const Call& call : link_.backward) {
      for (const ValueId v : call.arguments) {
        if (producer_.count(v) != 0 && v != link_.output) direct.insert(v);
      }
    }
    stack.assign(direct.begin(), direct.end());
    while (!stack.empty()) {
      const ValueId v = stack.back();
      stack.pop_back();
      if (!closure.insert(v).second) continue;
      for (const ValueId u : link_.forward[producer_.at(v)].arguments) {
        if (producer_.count(u) != 0 && u != link_.output && producer_.at(u) < producer_.at(v)) stack.push_back(u);
      }
    }
    std::vector<ValueId> candidates;
    for (const ValueId v : inner_order_) {
      if (closure.count(v) != 0 && (direct.count(v) != 0 || !is_dominated(v))) candidates.push_back(v);
    }
    constexpr size_t kMaxCandidates = 12;
    if (candidates.size() > kMaxCandidates) {
      std::vector<ValueId> by_size = candidates;
      std::stable_sort(by_size.begin(), by_size.end(),
                       [this](ValueId a, ValueId b) { return graph_.tensor(a).bytes < graph_.tensor(b).bytes; });
      always.assign(by_size.begin(), by_size.end() - kMaxCandidates);
      std::erase_if(candidates, [&](ValueId v) { return std::count(always.begin(), always.end(), v) != 0; });
    }
    return candidates;
  }

  bool is_dominated(ValueId v) const {
    const auto found = consumers_.find(v);
    if (found == consumers_.end() || found->second.size() != 1) return false;
    const Call& consumer = link_.forward[found->second[0]];
    const int inputs = static_cast<int>(std::count_if(consumer.arguments.begin() + 1, consumer.arguments.end(),
                                                      [this](ValueId u) { return is_activation(graph_, u); }));
    return inputs == 1 && graph_.tensor(consumer.arguments[0]).bytes <= graph_.tensor(v).bytes;
  }

  // Backward calls with what is missing recomputed depth-first, once.
  std::vector<Call> backward_with(const std::vector<ValueId>& kept) const {
    std::set<ValueId> available(kept.begin(), kept.end());
    available.insert(link_.input);
    if (link_.output != kNoValue) available.insert(link_.output);
    std::vector<Call> calls;
    for (const Call& call : link_.backward) {
      for (const ValueId v : call.arguments) recompute(v, available, calls);
      calls.push_back(call);
    }
    return calls;
  }

  void recompute(ValueId v, std::set<ValueId>& available, std::vector<Call>& calls) const {
    const auto found = producer_.find(v);
    if (found == producer_.end() || available.count(v) != 0) return;
    const Call& call = link_.forward[found->second];
    const KernelInfo& kernel = kOps[kernel_index(call.op, call.pass)];
    for (size_t a = 0; a < call.arguments.size(); ++a) {
      if (kernel.arguments[a].role != Role::kOutput) recompute(call.arguments[a], available, calls);
    }
    calls.push_back(call);
    for (size_t a = 0; a < call.arguments.size(); ++a) {
      if (kernel.arguments[a].role == Role::kOutput && call.arguments[a] != kNoValue) available.insert(call.arguments[a]);
    }
  }

  TapeChoice tape_of(const std::vector<ValueId>& kept) const {
    TapeChoice tape;
    tape.kept = kept;
    tape.bytes = link_.output == kNoValue ? 0 : graph_.tensor(link_.output).bytes;
    for (const ValueId v : kept) tape.bytes += graph_.tensor(v).bytes;
    const std::vector<ValueId> placed = placed_outside(kept);
    tape.forward = arrange_calls(graph_, link_.forward, placed, scratch_);
    tape.forward_scratch_bytes = tape.forward.scratch_bytes;
    std::vector<ValueId> hosts = kept;  // the tape and the old gradient die with this backward
    for (const ValueId v : {link_.output, link_.d_output}) {
      if (v != kNoValue) hosts.push_back(v);
    }
    tape.backward = arrange_calls(graph_, backward_with(kept), placed, scratch_, hosts);
    for (const Call& call : tape.backward.calls) tape.backward_price += price_(graph_, call);
    return tape;
  }

  static bool dominates(const TapeChoice& a, const TapeChoice& b) {
    return a.bytes <= b.bytes && a.backward_price <= b.backward_price && a.backward.scratch_bytes <= b.backward.scratch_bytes &&
           a.forward.scratch_bytes <= b.forward.scratch_bytes;
  }

  static std::vector<TapeChoice> pareto_front(std::vector<TapeChoice> all) {
    std::stable_sort(all.begin(), all.end(), [](const TapeChoice& a, const TapeChoice& b) {
      return a.backward_price != b.backward_price ? a.backward_price < b.backward_price : a.bytes < b.bytes;
    });
    std::vector<TapeChoice> front;
    for (TapeChoice& tape : all) {
      const bool beaten = std::any_of(front.begin(), front.end(), [&](const TapeChoice& f) { return dominates(f, tape); });
      if (!beaten) front.push_back(std::move(tape));
    }
    std::stable_sort(front.begin(), front.end(), [](const TapeChoice& a, const TapeChoice& b) { return a.bytes > b.bytes; });
    return front;
  }

  const Graph& graph_;
  LinkBody& link_;
  const ScratchBytes scratch_;
  const CallPrice& price_;
  std::map<ValueId, size_t> producer_;                // inner value -> forward call, the recomputable one
  std::map<ValueId, std::vector<size_t>> consumers_;  // forward calls that read it
  std::vector<ValueId> inner_order_;
  std::vector<ResidueSet> residues_;  // corners of the hull, nothing kept first
};

// Values in order of appearance: two links with equal signatures differ only in which values these are.
std::vector<ValueId> appearing_values(const LinkBody& link) {
  std::vector<ValueId> order = {link.input, link.output, link.d_input, link.d_output};
  std::set<ValueId> seen(order.begin(), order.end());
  for (const auto* calls : {&link.forward, &link.backward}) {
    for (const Call& call : *calls) {
      for (const ValueId v : call.arguments) {
        if (v != kNoValue && seen.insert(v).second) order.push_back(v);
      }
    }
  }
  return order;
}

// Attributes that change neither shapes, prices nor scratch stay out: random streams and the optimizer's constants.
bool attribute_matters(Op op) {
  return op != Op::kDropout && op != Op::kAttention && op != Op::kSgd && op != Op::kAdamW && op != Op::kGradNorm;
}

std::string signature_of(const Graph& graph, const LinkBody& link, const std::vector<ValueId>& order) {
  std::map<ValueId, size_t> index;
  std::ostringstream text;
  for (size_t i = 0; i < order.size(); ++i) {
    index.emplace(order[i], i);
    if (order[i] == kNoValue) {
      text << "none;";
      continue;
    }
    const Value& value = graph.values[order[i]];
    text << static_cast<int>(value.kind) << ',' << static_cast<int>(value.tensor.dtype);
    for (const uint32_t d : value.tensor.shape) text << ',' << d;
    text << ';';
  }
  for (const auto* calls : {&link.forward, &link.backward}) {
    for (const Call& call : *calls) {
      text << static_cast<int>(call.op) << ':' << static_cast<int>(call.pass) << ':' << (attribute_matters(call.op) ? call.attribute : 0)
           << ':' << int{call.accumulate} << call.once;
      for (const ValueId v : call.arguments) text << ' ' << (v == kNoValue ? -1 : static_cast<int>(index.at(v)));
      text << '|';
    }
    text << '/';
  }
  return text.str();
}

// Copies the solution of a link of equal signature, value by value and attribute by attribute.
class Transfer {
 public:
  Transfer(const LinkBody& from, LinkBody& to, const std::vector<ValueId>& from_values, const std::vector<ValueId>& to_values) {
    for (size_t i = 0; i < from_values.size(); ++i) value_.emplace(from_values[i], to_values[i]);
    value_[kNoValue] = kNoValue;
    for (size_t i = 0; i < from.forward.size(); ++i) add_call(from.forward[i], to.forward[i]);
    for (size_t i = 0; i < from.backward.size(); ++i) add_call(from.backward[i], to.backward[i]);
    to.forward_price = from.forward_price;
    to.advance = arranged(from.advance);
    for (TapeChoice tape : from.tapes) {
      for (ValueId& v : tape.kept) v = value_.at(v);
      tape.forward = arranged(tape.forward);
      tape.backward = arranged(tape.backward);
      to.tapes.push_back(std::move(tape));
    }
    for (ResidueChoice residue : from.residues) {
      for (ValueId& v : residue.kept) v = value_.at(v);
      residue.lay = arranged(residue.lay);
      residue.held = arranged(residue.held);
      for (ArrangedCalls& record : residue.records) record = arranged(record);
      to.residues.push_back(std::move(residue));
    }
    to.forward_scratch_bytes = from.forward_scratch_bytes;
  }

 private:
  using Key = std::pair<std::vector<ValueId>, std::pair<Op, Pass>>;
  static Key key(const Call& call) { return {call.arguments, {call.op, call.pass}}; }
  void add_call(const Call& from, const Call& to) { call_.emplace(key(from), to); }

  ArrangedCalls arranged(ArrangedCalls calls) const {
    for (Call& call : calls.calls) call = call_.at(key(call));
    for (ArrangedCalls::Buffer& buffer : calls.buffers) {
      for (ValueId& v : buffer.values) v = value_.at(v);
      buffer.host = value_.at(buffer.host);
    }
    return calls;
  }

  std::map<ValueId, ValueId> value_;
  std::map<Key, Call> call_;
};

}  // namespace

ChainBodies cut_into_links(Graph& graph) {
  ChainBodies chain;
  BackwardBuilder builder(graph);
  drop_frozen_boundaries(graph, builder);
  chain.links = split_nodes(graph);
  const size_t count = chain.links.size();
  for (size_t i = 0; i < count; ++i) {
    LinkBody& link = chain.links[i];
    check_cut(graph, link);
    for (size_t n = link.first_node; n < link.end_node; ++n) {
      for (Call& call : forward_calls(graph, graph.nodes[n])) link.forward.push_back(std::move(call));
    }
  }
  ValueId d_output = kNoValue;
  for (size_t i = count; i-- > 0;) {
    LinkBody& link = chain.links[i];
    link.d_output = d_output;
    if (link.output != kNoValue && d_output == kNoValue) continue;  // nothing trainable at or below this link
    BackwardBuilder::Range range = builder.build(link.first_node, link.end_node, link.input, link.output, d_output);
    link.backward = std::move(range.calls);
    link.d_input = range.d_input;
    d_output = range.d_input;
  }
  chain.weight_gradients.assign(graph.values.size(), kNoValue);
  for (const auto& [parameter, gradient] : builder.weight_gradients()) chain.weight_gradients[parameter] = gradient;
  return chain;
}

// Prices per byte that split the links' choices of residue evenly, the dearest first: few modes serve all links.
std::vector<double> mode_prices(std::vector<double> changes) {
  constexpr size_t kModes = 3;
  std::sort(changes.begin(), changes.end(), std::greater<>());
  changes.erase(std::unique(changes.begin(), changes.end()), changes.end());
  std::vector<double> prices;
  for (size_t k = 0; k < kModes && !changes.empty(); ++k) {
    const size_t at = (2 * k + 1) * changes.size() / (2 * kModes);
    const double price = at + 1 < changes.size() ? (changes[at] + changes[at + 1]) / 2 : changes[at] / 2;
    if (prices.empty() || price < prices.back()) prices.push_back(price);
  }
  return prices;
}

void solve_links(const Graph& graph, std::vector<LinkBody>& links, ScratchBytes scratch, const CallPrice& price) {
  std::map<std::string, size_t> first_of;
  std::vector<std::vector<ValueId>> orders(links.size());
  std::vector<size_t> same_as(links.size());
  std::map<size_t, LinkSolver> solvers;
  std::vector<double> changes;
  for (size_t i = 0; i < links.size(); ++i) {
    orders[i] = appearing_values(links[i]);
    const auto [found, is_new] = first_of.emplace(signature_of(graph, links[i], orders[i]), i);
    same_as[i] = found->second;
    if (!is_new) continue;
    LinkSolver& solver = solvers.emplace(i, LinkSolver(graph, links[i], scratch, price)).first->second;
    solver.solve();
    const std::vector<double> prices = solver.residue_prices();
    changes.insert(changes.end(), prices.begin(), prices.end());
  }
  for (const double mode : mode_prices(changes)) {
    for (auto& [i, solver] : solvers) solver.add_mode(mode);
  }
  for (size_t i = 0; i < links.size(); ++i) {
    if (same_as[i] != i) Transfer(links[same_as[i]], links[i], orders[same_as[i]], orders[i]);
  }
}

Chain chain_of(const Graph& graph, const std::vector<LinkBody>& links) {
  Chain chain;
  chain.input_bytes = graph.tensor(graph.input).bytes;
  for (const LinkBody& body : links) {
    Link link;
    link.name = body.name;
    link.forward_cost = body.forward_price;
    link.boundary_bytes = body.output == kNoValue ? 0 : graph.tensor(body.output).bytes;
    link.forward_scratch_bytes = body.forward_scratch_bytes;
    for (const TapeChoice& tape : body.tapes) {
      link.tapes.push_back({tape.bytes, tape.backward_price, tape.backward.scratch_bytes, tape.forward_scratch_bytes});
    }
    for (const ResidueChoice& residue : body.residues) link.residues.push_back({residue.bytes, residue.forward_price});
    chain.links.push_back(link);
  }
  return chain;
}

}  // namespace reprise
