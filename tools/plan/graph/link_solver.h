// Enumerates what one link may keep: its front of tapes, and its residue for each mode. Every
// distinct link is solved once, before any schedule, over all subsets of at most kMaxCandidates
// values. For a link of more than kCallsWithAllCandidates calls there are fewer values.
#pragma once

#include <map>
#include <set>

#include "tools/plan/graph/link.h"

namespace reprise {

class LinkSolver {
 public:
  LinkSolver(const Graph& graph, LinkBody& link, const BackendRules& rules, const CallPrice& price);

  // Finds the link's tapes, and the residues from which add_mode() chooses. Marks the link if it is
  // truncated. If `keep` is given, the link gets one tape, which the rule selects, and no residues.
  void solve(const KeepRule& keep);

  // Returns the prices per byte at which this link's choice of residue changes.
  std::vector<double> residue_prices() const;

  // Returns the index of the cheapest residue at a price per byte; 0: nothing is kept.
  size_t residue_at(double price_per_byte) const;

  // Appends a mode to the link: the residue that is cheapest at this price per byte, with its
  // calls.
  void add_mode(double price_per_byte);

 private:
  struct ResidueCandidate {
    std::vector<ValueId> kept;
    uint64_t bytes = 0;
    double forward_price = 0;  // price of a forward from the residue that keeps only the output
    // forward_price plus the price of recording tapes[0] from the residue, because a link is
    // recorded once
    double price = 0;
  };

  double price_of(const std::vector<Call>& calls) const;
  std::vector<Call> forward_with(const std::vector<ValueId>& kept, const std::vector<ValueId>& wanted) const;
  std::vector<ValueId> values_kept_by(const KeepRule& keep) const;
  std::vector<TapeChoice> front_of_tapes(const std::vector<ValueId>& always,
                                         const std::vector<ValueId>& candidates) const;
  size_t max_candidates() const;
  void find_needed();
  void find_residues();
  std::vector<ValueId> placed_outside(const std::vector<ValueId>& kept) const;
  std::vector<ValueId> find_candidates(std::vector<ValueId>& always) const;
  bool is_dominated(ValueId v) const;
  std::vector<Call> backward_with(const std::vector<Call>& order, const std::vector<ValueId>& kept) const;
  ArrangedCalls arrange_backward(const std::vector<Call>& order, const std::vector<ValueId>& kept) const;
  void choose_backward_order(TapeChoice& tape) const;
  void recompute(ValueId v, std::set<ValueId>& available, std::vector<Call>& calls) const;
  TapeChoice tape_of(const std::vector<ValueId>& kept) const;

  const Graph& graph_;
  LinkBody& link_;
  const BackendRules& rules_;
  const CallPrice& price_;
  std::map<ValueId, size_t> producer_;                // inner value -> the forward call that writes it
  std::map<ValueId, std::vector<size_t>> consumers_;  // inner value -> the forward calls that read it
  std::vector<ValueId> inner_order_;
  // direct_: inner values that the backward reads. needed_: these, and all that recomputing them
  // could need.
  std::set<ValueId> direct_, needed_;
  // corners of the lower convex hull of (bytes, price), by increasing bytes; the first keeps
  // nothing
  std::vector<ResidueCandidate> residues_;
};

}  // namespace reprise
