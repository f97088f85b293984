// Chains whose answers are known: PLANNING 4's golden chain, equal steps, and what reversing those costs at least.
// Here because several tests and the planner's benchmark measure themselves by them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/schedule/chain.h"

namespace reprise {

// Equal steps: boundaries of 1 byte, every tape `tape_bytes`, the loss's one byte more. Forward 1, backward 2. Of
// s + tape_bytes + 3 bytes s are slots.
inline Chain unit_chain(int length, uint64_t tape_bytes) {
  Chain chain{.input_bytes = 1, .links = {}};
  for (int i = 0; i < length; ++i) {
    const bool loss = i + 1 == length;
    chain.links.push_back({.name = "step", .forward_cost = 1, .boundary_bytes = loss ? 0u : 1u, .forward_scratch_bytes = 0,
                           .tapes = {{.bytes = tape_bytes + (loss ? 1 : 0), .backward_cost = 2}}, .residues = {}});
  }
  return chain;
}

// t(s, l) by Bellman's equation alone, by slots and steps.
inline std::vector<std::vector<uint64_t>> extra_forwards_by_recursion(int most_slots, int most_steps) {
  std::vector<std::vector<uint64_t>> cost(most_slots + 1, std::vector<uint64_t>(most_steps + 1, 0));
  for (int s = 1; s <= most_slots; ++s) {
    for (int l = 2; l <= most_steps; ++l) {
      uint64_t best = static_cast<uint64_t>(l) * (l - 1) / 2;
      for (int m = 1; m < l && s > 1; ++m) best = std::min(best, m + cost[s - 1][l - m] + cost[s][m]);
      cost[s][l] = best;
    }
  }
  return cost;
}

// PLANNING 4's public golden.
inline Chain golden_chain() {
  struct Row {
    double forward;
    uint64_t boundary, forward_scratch, tape;
    double backward;
    uint64_t scratch, residue;
    double residue_forward;
  };
  const Row rows[] = {{3, 2, 1, 5, 6, 1, 1, 1}, {5, 3, 0, 7, 9, 2, 2, 2},  {2, 1, 2, 4, 4, 0, 1, 1},
                      {6, 2, 1, 6, 12, 1, 2, 1}, {4, 2, 0, 5, 8, 1, 1, 2}, {1, 0, 0, 0, 1, 0, 0, 1}};
  Chain chain{.input_bytes = 2, .links = {}};
  for (const Row& r : rows) {
    chain.links.push_back({.name = "g" + std::to_string(chain.links.size()), .forward_cost = r.forward, .boundary_bytes = r.boundary,
                           .forward_scratch_bytes = r.forward_scratch,
                           .tapes = {{.bytes = r.tape, .backward_cost = r.backward, .scratch_bytes = r.scratch,
                                      .forward_scratch_bytes = r.forward_scratch}},
                           .residues = {{.bytes = r.residue, .forward_cost = r.residue_forward}}});
  }
  return chain;
}

}  // namespace reprise
