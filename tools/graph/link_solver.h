// Enumerates what one link may keep: its front of tapes, and its residue for every mode.
// Here because every distinct link is solved once, before any schedule: over all sets of what it may keep, up to kMostCandidates values, fewer
// of a link of thousands of calls.
#pragma once

#include <map>
#include <set>

#include "tools/graph/link.h"

namespace reprise {

class LinkSolver {
 public:
  LinkSolver(const Graph& graph, LinkBody& link, const BackendRules& rules, const CallPrice& price);

  // Finds the tapes: under a rule, the one that it keeps; without, the whole front, and what residues there are; marks a truncated link.
  void solve(const KeepRule& keep);

  // Prices per byte at which this link's choice of residue changes.
  std::vector<double> residue_prices() const;

  // Which residue is cheapest at a price per byte; 0: nothing kept.
  size_t residue_at(double price_per_byte) const;

  // Appends the mode of that price.
  void add_mode(double price_per_byte);

 private:
  struct ResidueCandidate {
    std::vector<ValueId> kept;
    uint64_t bytes = 0;
    double forward_price = 0;  // of a forward that keeps only the output
    double price = 0;          // that and the forward that records tapes[0]: every link is recorded once in the end
  };

  double price_of(const std::vector<Call>& calls) const;
  std::vector<Call> forward_with(const std::vector<ValueId>& held, const std::vector<ValueId>& wanted) const;
  std::vector<ValueId> values_kept_by(const KeepRule& keep) const;
  std::vector<TapeChoice> front_of_tapes(const std::vector<ValueId>& always, const std::vector<ValueId>& candidates) const;
  size_t most_candidates() const;
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
  std::map<ValueId, size_t> producer_;                // inner value -> forward call, the recomputable one
  std::map<ValueId, std::vector<size_t>> consumers_;  // forward calls that read it
  std::vector<ValueId> inner_order_;
  std::set<ValueId> direct_, needed_;  // inner values: read by the backward; these, and what recomputing them could need
  std::vector<ResidueCandidate> residues_;   // corners of the hull, nothing kept first
};

}  // namespace reprise
