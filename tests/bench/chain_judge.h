// Finds the true optimum of a tiny chain, by Dijkstra over every state that forwards, recordings,
// backwards and frees can reach. A planner may not claim a lower cost. A residue or a tape may be
// dropped at any time, and a tape may be reduced to its output. The judge shares no code with the
// planner, and counts memory by the rules of PLANNING 4 itself.
#pragma once

#include <cmath>
#include <cstdint>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tools/plan/schedule/chain.h"

namespace reprise::bench {

class ChainJudge {
 public:
  static constexpr int kMaxLinks = 10, kMaxChoices = 3;  // maximum of links; of tapes and of residues of each link

  ChainJudge(const Chain& chain, uint64_t memory_bytes, bool residues)
      : chain_(chain), memory_(memory_bytes), residues_(residues) {}

  // Returns the minimum makespan; infinity if nothing fits.
  double min_makespan() {
    offer(with_gradient(set(0, 0, kValue, 1), chain_.length()), 0);
    while (!queue_.empty()) {
      const auto [cost, state] = queue_.top();
      queue_.pop();
      if (cost > best_[state]) continue;
      if (gradient(state) == 0) return cost;
      expand(state, cost);
    }
    return INFINITY;
  }

 private:
  // Five bits for each link i. The first is set if boundary i is kept outside a tape. The next two
  // are the tape (0: none, otherwise index + 1), and the last two are the residue (0: none,
  // otherwise index + 1). The bits from 56 on are the boundary whose gradient has been computed.
  using State = uint64_t;
  enum Field { kValue = 0, kTape = 1, kResidue = 3 };
  static int get(State s, int i, Field field) {
    return static_cast<int>(s >> (5 * i + field)) & (field == kValue ? 1 : 3);
  }
  static State set(State s, int i, Field field, int value) {
    const State mask = (field == kValue ? State{1} : State{3}) << (5 * i + field);
    return (s & ~mask) | static_cast<State>(value) << (5 * i + field);
  }
  static int gradient(State s) { return static_cast<int>(s >> 56); }
  static State with_gradient(State s, int g) { return (s & ((State{1} << 56) - 1)) | static_cast<State>(g) << 56; }

  uint64_t live(State s) const {
    uint64_t sum = chain_.boundary_bytes(gradient(s));
    for (int i = 0; i < chain_.length(); ++i) {
      const int tape = get(s, i, kTape), residue = get(s, i, kResidue);
      if (get(s, i, kValue)) sum += chain_.boundary_bytes(i);
      if (tape && residue && !chain_.links[i].residues[residue - 1].tape_bytes.empty()) {
        sum += chain_.links[i].residues[residue - 1].tape_bytes[tape - 1];
        continue;
      }
      if (tape) sum += chain_.links[i].tapes[tape - 1].bytes;
      if (residue && tape != 1) sum += chain_.links[i].residues[residue - 1].bytes;  // the full tape has the residue
    }
    return sum;
  }
  bool is_there(State s, int i) const { return get(s, i, kValue) || (i > 0 && get(s, i - 1, kTape)); }
  void offer(State s, double cost) {
    const auto [place, fresh] = best_.try_emplace(s, cost);
    if (!fresh && place->second <= cost) return;
    place->second = cost;
    queue_.push({cost, s});
  }
  void expand(State s, double cost) {
    for (int i = 1; i <= gradient(s) && i < chain_.length(); ++i) {
      if (get(s, i, kValue)) offer(set(s, i, kValue, 0), cost);
    }
    for (int i = 0; i < gradient(s); ++i) {
      if (get(s, i, kResidue)) offer_if_it_fits(set(s, i, kResidue, 0), 0, cost);
      if (get(s, i, kTape)) {
        offer_if_it_fits(set(s, i, kTape, 0), 0, cost);
        if (i + 1 < chain_.length()) offer_if_it_fits(set(set(s, i, kTape, 0), i + 1, kValue, 1), 0, cost);
      }
      if (is_there(s, i)) run_forward(s, cost, i);
    }
    run_backward(s, cost, gradient(s) - 1);
  }
  void offer_if_it_fits(State s, uint64_t scratch, double cost) {
    if (live(s) + scratch <= memory_) offer(s, cost);
  }
  void run_forward(State s, double cost, int i) {
    if (get(s, i, kTape)) return;
    const Link& link = chain_.links[i];
    const int held = get(s, i, kResidue);
    const double after = cost + (held ? link.residues[held - 1].forward_cost : link.forward_cost);
    if (i + 1 < chain_.length() && !get(s, i + 1, kValue)) {
      const State next = set(s, i + 1, kValue, 1);
      offer_if_it_fits(next, link.forward_scratch_bytes, after);
      const int modes = residues_ && !held ? static_cast<int>(link.residues.size()) : 0;
      for (int r = 1; r <= modes; ++r) offer_if_it_fits(set(next, i, kResidue, r), link.forward_scratch_bytes, after);
    }
    for (int t = 1; t <= static_cast<int>(link.tapes.size()); ++t) {
      offer_if_it_fits(set(s, i, kTape, t), link.tapes[t - 1].forward_scratch_bytes, after);
    }
  }
  void run_backward(State s, double cost, int i) {
    const int tape = get(s, i, kTape);
    if (tape == 0 || !is_there(s, i)) return;
    const Tape& given = chain_.links[i].tapes[tape - 1];
    if (live(s) + chain_.boundary_bytes(i) + given.scratch_bytes > memory_) return;
    offer(with_gradient(set(set(s, i, kTape, 0), i, kResidue, 0), i), cost + given.backward_cost);
  }

  const Chain& chain_;
  uint64_t memory_;
  bool residues_;
  std::unordered_map<State, double> best_;  // smallest known cost of reaching a state
  std::priority_queue<std::pair<double, State>, std::vector<std::pair<double, State>>, std::greater<>> queue_;
};

}  // namespace reprise::bench
