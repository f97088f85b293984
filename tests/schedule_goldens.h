// Chains with known answers: the golden chain of PLANNING 4, and chains of equal steps with the
// minimum cost of reversing them. Several tests and the planner's benchmark use them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/plan/schedule/chain.h"

namespace reprise {

// Returns a chain of equal steps: boundaries have 1 byte, tapes have `tape_bytes`, and the tape of
// the loss has one byte more. A forward costs 1, and a backward 2. With a memory of s + tape_bytes
// + 3 bytes, s bytes are slots for boundaries.
inline Chain unit_chain(int length, uint64_t tape_bytes) {
  Chain chain{.input_bytes = 1, .links = {}};
  for (int i = 0; i < length; ++i) {
    const bool loss = i + 1 == length;
    chain.links.push_back({.name = "step", .forward_cost = 1, .boundary_bytes = loss ? 0u : 1u, .forward_scratch_bytes = 0,
                           .tapes = {{.bytes = tape_bytes + (loss ? 1 : 0), .backward_cost = 2}}, .residues = {}});
  }
  return chain;
}

// Returns t(s, l), the extra forwards for l steps with s slots, computed by Bellman's equation
// alone.
inline std::vector<std::vector<uint64_t>> extra_forwards_by_recursion(int max_slots, int max_steps) {
  std::vector<std::vector<uint64_t>> cost(max_slots + 1, std::vector<uint64_t>(max_steps + 1, 0));
  for (int s = 1; s <= max_slots; ++s) {
    for (int l = 2; l <= max_steps; ++l) {
      uint64_t best = static_cast<uint64_t>(l) * (l - 1) / 2;
      for (int m = 1; m < l && s > 1; ++m) best = std::min(best, m + cost[s - 1][l - m] + cost[s][m]);
      cost[s][l] = best;
    }
  }
  return cost;
}

// Returns the public golden chain of PLANNING 4.
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
