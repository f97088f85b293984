// Arranges and packs every subset of the values worth keeping, and keeps the Pareto front.
#include "tools/plan/graph/link_solver.h"

#include <algorithm>
#include <optional>

#include "lib/assert.h"
#include "tools/files/progress/long_work.h"
#include "tools/plan/graph/backward_order.h"
#include "tools/plan/graph/skips.h"

namespace reprise {

namespace {

bool is_activation(const Graph& graph, ValueId v) {
  return v != kNoValue && graph.values[v].kind == ValueKind::kActivation;
}

// Costs of one set of kept values, without its calls: the calls of all sets would not fit into
// memory.
struct TapeSum {
  uint32_t mask = 0;
  uint64_t bytes = 0, backward_scratch_bytes = 0, forward_scratch_bytes = 0;
  double backward_price = 0;
};

bool dominates(const TapeSum& a, const TapeSum& b) {
  return a.bytes <= b.bytes && a.backward_price <= b.backward_price &&
         a.backward_scratch_bytes <= b.backward_scratch_bytes && a.forward_scratch_bytes <= b.forward_scratch_bytes;
}

std::vector<TapeSum> pareto_front(std::vector<TapeSum> all) {
  std::stable_sort(all.begin(), all.end(), [](const TapeSum& a, const TapeSum& b) {
    return a.backward_price != b.backward_price ? a.backward_price < b.backward_price : a.bytes < b.bytes;
  });
  std::vector<TapeSum> front;
  for (const TapeSum& tape : all) {
    const bool beaten = std::any_of(front.begin(), front.end(), [&](const TapeSum& f) { return dominates(f, tape); });
    if (!beaten) front.push_back(tape);
  }
  std::stable_sort(front.begin(), front.end(), [](const TapeSum& a, const TapeSum& b) { return a.bytes > b.bytes; });
  return front;
}

}  // namespace

LinkSolver::LinkSolver(const Graph& graph, LinkBody& link, const BackendRules& rules, const CallPrice& price)
    : graph_(graph), link_(link), rules_(rules), price_(price) {
  for (size_t i = 0; i < link.forward.size(); ++i) {
    const Call& call = link.forward[i];
    const KernelInfo& kernel = kernel_info(call.op, call.pass);
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

void LinkSolver::solve(const KeepRule& keep) {
  link_.forward_price = 0;
  for (const Call& call : link_.forward) {
    if (const auto again = repeated(call)) link_.forward_price += price_(graph_, *again);
  }
  link_.advance = arrange_calls(graph_, link_.forward, placed_outside({}), rules_);
  link_.forward_scratch_bytes = link_.advance.scratch_bytes;
  find_needed();
  if (keep) {
    link_.tapes = {tape_of(values_kept_by(keep))};
  } else {
    std::vector<ValueId> always;
    const std::vector<ValueId> candidates = find_candidates(always);
    link_.truncated = !always.empty();
    link_.tapes = front_of_tapes(always, candidates);
    find_residues();
  }
  for (TapeChoice& tape : link_.tapes) choose_backward_order(tape);
}

// Returns the values that the rule selects and that the backward, with its recomputation, reads.
// For example, a rule may select queries and their rotated copy, although the backward reads only
// the copy.
std::vector<ValueId> LinkSolver::values_kept_by(const KeepRule& keep) const {
  std::vector<ValueId> kept;
  for (const ValueId v : inner_order_) {
    if (needed_.count(v) != 0 && keep(graph_, link_.forward[producer_.at(v)].op, v)) kept.push_back(v);
  }
  std::set<ValueId> read;
  for (const Call& call : backward_with(link_.backward, kept))
    read.insert(call.arguments.begin(), call.arguments.end());
  std::erase_if(kept, [&read](ValueId v) { return read.count(v) == 0; });
  return kept;
}

std::vector<TapeChoice> LinkSolver::front_of_tapes(const std::vector<ValueId>& always,
                                                   const std::vector<ValueId>& candidates) const {
  const auto tape_with = [&](uint32_t mask) {
    std::vector<ValueId> kept = always;
    for (size_t c = 0; c < candidates.size(); ++c) {
      if ((mask >> c & 1u) != 0) kept.push_back(candidates[c]);
    }
    return tape_of(kept);
  };
  const uint32_t count = 1u << candidates.size();
  std::vector<TapeSum> all;
  std::optional<LongWork> work;
  if (link_.forward.size() > kCallsWithAllCandidates / 8)
    work.emplace("what a link of " + std::to_string(link_.forward.size()) + " calls may keep");
  for (uint32_t mask = 0; mask < count; ++mask) {
    const TapeChoice tape = tape_with(mask);
    all.push_back({mask, tape.bytes, tape.backward.scratch_bytes, tape.forward.scratch_bytes, tape.backward_price});
    if (work) work->done(static_cast<double>(mask + 1) / count);
  }
  std::vector<TapeChoice> front;
  for (const TapeSum& sum : pareto_front(std::move(all))) front.push_back(tape_with(sum.mask));
  return front;
}

// Returns the maximum number of candidates. A long link gets fewer than kMaxCandidates, so that
// solving it takes no more work than solving a link of kCallsWithAllCandidates calls with
// kMaxCandidates.
size_t LinkSolver::max_candidates() const {
  size_t maximum = kMaxCandidates;
  for (size_t calls = link_.forward.size() + link_.backward.size(); calls > kCallsWithAllCandidates && maximum > 0;
       calls = (calls + 1) / 2)
    --maximum;
  return maximum;
}

std::vector<double> LinkSolver::residue_prices() const {
  std::vector<double> prices;
  for (size_t i = 1; i < residues_.size(); ++i) {
    prices.push_back((residues_[i - 1].price - residues_[i].price) /
                     static_cast<double>(residues_[i].bytes - residues_[i - 1].bytes));
  }
  return prices;
}

size_t LinkSolver::residue_at(double price_per_byte) const {
  const auto total = [price_per_byte](const ResidueCandidate& set) {
    return set.price + price_per_byte * static_cast<double>(set.bytes);
  };
  const auto cheapest =
      std::min_element(residues_.begin(), residues_.end(),
                       [&](const ResidueCandidate& a, const ResidueCandidate& b) { return total(a) < total(b); });
  return static_cast<size_t>(cheapest - residues_.begin());
}

void LinkSolver::add_mode(double price_per_byte) {
  REPRISE_ASSERT(!residues_.empty(), "a mode chooses among the residues that solve() has found");
  const ResidueCandidate& best = residues_[residue_at(price_per_byte)];
  ResidueChoice mode;
  mode.kept = best.kept;
  mode.bytes = best.bytes;
  mode.forward_price = best.forward_price;
  mode.lay = arrange_calls(graph_, link_.forward, placed_outside(mode.kept), rules_);
  mode.later = arrange_calls(graph_, forward_with(mode.kept, {}), placed_outside(mode.kept), rules_);
  link_.forward_scratch_bytes =
      std::max({link_.forward_scratch_bytes, mode.lay.scratch_bytes, mode.later.scratch_bytes});
  for (TapeChoice& tape : link_.tapes) {
    std::vector<ValueId> both = tape.kept;
    both.insert(both.end(), mode.kept.begin(), mode.kept.end());
    mode.record_prices.push_back(price_of(forward_with(mode.kept, tape.kept)));
    mode.records.push_back(arrange_calls(graph_, forward_with(mode.kept, tape.kept), placed_outside(both), rules_));
    tape.forward_scratch_bytes = std::max(tape.forward_scratch_bytes, mode.records.back().scratch_bytes);
  }
  link_.residues.push_back(std::move(mode));
}

double LinkSolver::price_of(const std::vector<Call>& calls) const {
  double price = 0;
  for (const Call& call : calls) price += price_(graph_, call);
  return price;
}

// Returns the forward calls that compute the output and `wanted` if `kept` exists already.
std::vector<Call> LinkSolver::forward_with(const std::vector<ValueId>& kept, const std::vector<ValueId>& wanted) const {
  std::set<ValueId> available(kept.begin(), kept.end());
  available.insert(link_.input);
  std::vector<Call> calls;
  for (const ValueId v : wanted) recompute(v, available, calls);
  if (link_.output != kNoValue) recompute(link_.output, available, calls);
  return calls;
}

// Finds the lower convex hull of (bytes, price) over the subsets of tapes[0], or of its first
// max_candidates() values. At any price per byte, the cheapest set is a corner of the hull.
void LinkSolver::find_residues() {
  const std::vector<ValueId>& kept = link_.tapes[0].kept;
  const size_t count =
      link_.output == kNoValue || link_.backward.empty() ? 0 : std::min(kept.size(), max_candidates());
  std::vector<ResidueCandidate> all;
  for (uint32_t mask = 0; mask < 1u << count; ++mask) {
    ResidueCandidate set;
    for (size_t c = 0; c < count; ++c) {
      if ((mask >> c & 1u) == 0) continue;
      set.kept.push_back(kept[c]);
      set.bytes += graph_.tensor(kept[c]).bytes;
    }
    set.forward_price = price_of(forward_with(set.kept, {}));
    set.price = set.forward_price + price_of(forward_with(set.kept, kept));
    all.push_back(std::move(set));
  }
  std::stable_sort(all.begin(), all.end(), [](const ResidueCandidate& a, const ResidueCandidate& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.price < b.price;
  });
  const auto slope = [](const ResidueCandidate& a, const ResidueCandidate& b) {
    return (a.price - b.price) / static_cast<double>(b.bytes - a.bytes);
  };
  for (ResidueCandidate& set : all) {
    if (!residues_.empty() && (set.bytes == residues_.back().bytes || set.price >= residues_.back().price)) continue;
    while (residues_.size() > 1 &&
           slope(residues_[residues_.size() - 2], residues_.back()) <= slope(residues_.back(), set))
      residues_.pop_back();
    REPRISE_ASSERT(residues_.empty() || (set.bytes > residues_.back().bytes && set.price < residues_.back().price),
                   "along the hull of residues bytes grow and prices fall");
    residues_.push_back(std::move(set));
  }
}

// Returns the values that are stored outside the scratch block: `kept`, and the link's input,
// output and their gradients.
std::vector<ValueId> LinkSolver::placed_outside(const std::vector<ValueId>& kept) const {
  std::vector<ValueId> placed = kept;
  for (const ValueId v : {link_.input, link_.output, link_.d_input, link_.d_output}) {
    if (v != kNoValue) placed.push_back(v);
  }
  return placed;
}

// Finds the inner values that the backward reads, and those that recomputing them could need.
void LinkSolver::find_needed() {
  for (const Call& call : link_.backward) {
    for (const ValueId v : call.arguments) {
      if (producer_.count(v) != 0 && v != link_.output) direct_.insert(v);
    }
  }
  std::vector<ValueId> stack(direct_.begin(), direct_.end());
  while (!stack.empty()) {
    const ValueId v = stack.back();
    stack.pop_back();
    if (!needed_.insert(v).second) continue;
    for (const ValueId u : link_.forward[producer_.at(v)].arguments) {
      if (producer_.count(u) != 0 && u != link_.output && producer_.at(u) < producer_.at(v)) stack.push_back(u);
    }
  }
}

// Returns the needed values that are worth keeping. A value that no backward call reads is left out
// if its only reader computes a value that replaces it in no more bytes. (A ReLU's output replaces
// its input; joined queries, keys and values replace all three.) If more than max_candidates()
// values are left, the smallest go to `always`.
std::vector<ValueId> LinkSolver::find_candidates(std::vector<ValueId>& always) const {
  std::vector<ValueId> candidates;
  for (const ValueId v : inner_order_) {
    if (needed_.count(v) != 0 && (direct_.count(v) != 0 || !is_dominated(v))) candidates.push_back(v);
  }
  if (candidates.size() > max_candidates()) {
    std::vector<ValueId> by_size = candidates;
    std::stable_sort(by_size.begin(), by_size.end(),
                     [this](ValueId a, ValueId b) { return graph_.tensor(a).bytes < graph_.tensor(b).bytes; });
    always.assign(by_size.begin(), by_size.end() - static_cast<ptrdiff_t>(max_candidates()));
    const std::set<ValueId> kept(always.begin(), always.end());
    std::erase_if(candidates, [&](ValueId v) { return kept.count(v) != 0; });
  }
  return candidates;
}

bool LinkSolver::is_dominated(ValueId v) const {
  const auto found = consumers_.find(v);
  if (found == consumers_.end() || found->second.size() != 1) return false;
  const Call& consumer = link_.forward[found->second[0]];
  if (consumer.op == Op::kRope) return true;
  const int inputs = static_cast<int>(std::count_if(consumer.arguments.begin() + 1, consumer.arguments.end(),
                                                    [this](ValueId u) { return is_activation(graph_, u); }));
  return inputs == 1 && graph_.tensor(consumer.arguments[0]).bytes <= graph_.tensor(v).bytes;
}

// Returns the calls of `order` with the recomputation that they need: each missing value is
// recomputed once, before its first reader, after the values that it depends on.
std::vector<Call> LinkSolver::backward_with(const std::vector<Call>& order, const std::vector<ValueId>& kept) const {
  std::set<ValueId> available(kept.begin(), kept.end());
  available.insert(link_.input);
  if (link_.output != kNoValue) available.insert(link_.output);
  std::vector<Call> calls;
  for (const Call& call : order) {
    for (const ValueId v : call.arguments) recompute(v, available, calls);
    calls.push_back(call);
  }
  return calls;
}

// Appends the forward calls that compute v from available values, and adds their outputs to
// `available`. Uses an explicit stack of calls and their next argument, because a link may be a
// sequence of thousands of calls.
void LinkSolver::recompute(ValueId v, std::set<ValueId>& available, std::vector<Call>& calls) const {
  std::vector<std::pair<size_t, size_t>> stack;
  const auto begin = [&](ValueId value) {
    const auto found = producer_.find(value);
    if (found != producer_.end() && available.count(value) == 0) stack.emplace_back(found->second, 0);
  };
  begin(v);
  while (!stack.empty()) {
    auto& [place, next] = stack.back();
    const Call& call = link_.forward[place];
    const KernelInfo& kernel = kernel_info(call.op, call.pass);
    if (next < call.arguments.size()) {
      const size_t argument = next++;
      if (kernel.arguments[argument].role != Role::kOutput) begin(call.arguments[argument]);
      continue;
    }
    calls.push_back(*repeated(call));
    for (size_t a = 0; a < call.arguments.size(); ++a) {
      if (kernel.arguments[a].role == Role::kOutput && call.arguments[a] != kNoValue)
        available.insert(call.arguments[a]);
    }
    stack.pop_back();
  }
}

TapeChoice LinkSolver::tape_of(const std::vector<ValueId>& kept) const {
  TapeChoice tape;
  tape.kept = kept;
  tape.bytes = boundary_bytes(graph_, link_.output);
  for (const ValueId v : kept) tape.bytes += graph_.tensor(v).bytes;
  const std::vector<ValueId> placed = placed_outside(kept);
  tape.forward = arrange_calls(graph_, link_.forward, placed, rules_);
  tape.forward_scratch_bytes = tape.forward.scratch_bytes;
  tape.backward = arrange_backward(link_.backward, kept);
  for (const Call& call : tape.backward.calls) tape.backward_price += price_(graph_, call);
  return tape;
}

ArrangedCalls LinkSolver::arrange_backward(const std::vector<Call>& order, const std::vector<ValueId>& kept) const {
  // The tape and the old gradient are not needed after this backward. An output that is a skip may
  // have ended before, and its bytes may contain another skip's gradient.
  std::vector<ValueId> hosts = kept;
  for (const ValueId v : {link_.output, link_.d_output}) {
    if (v != kNoValue && graph_.values[v].kind != ValueKind::kSkip) hosts.push_back(v);
  }
  return arrange_calls(graph_, backward_with(order, kept), placed_outside(kept), rules_, hosts);
}

// Chooses the order of the backward with the least scratch; the original order if no other needs
// less. All orders recompute the same values, so that the price does not change. An order that
// reads a skip after its gradient begins is not chosen, because the two may share bytes.
void LinkSolver::choose_backward_order(TapeChoice& tape) const {
  const bool in_turn = reads_skips_first(graph_, tape.backward.calls);
  for (const std::vector<Call>& order : backward_orders(link_.backward)) {
    ArrangedCalls arranged = arrange_backward(order, tape.kept);
    if (in_turn && !reads_skips_first(graph_, arranged.calls)) continue;
    if (arranged.scratch_bytes < tape.backward.scratch_bytes) tape.backward = std::move(arranged);
  }
}

}  // namespace reprise
