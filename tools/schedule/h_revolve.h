// The recursion over what goes to disk: H-Revolve's two levels on links that differ, above the tables of `optimal`.
// The strategy is schedule_hrevolve of optimal.cpp; the papers' cost of equal steps, which the tests compare with, is two_level_steps.h's.
// Herrmann and Pallez, "H-Revolve", ACM TOMS 46 (2020); Aupy, Herrmann, Hovland and Robert, "Optimal multistage algorithm for
// adjoint computation", SIAM J. Sci. Comput. 38 (2016). Here apart from the tables because it asks them only for single values.
//
// Disk comes first, memory within, as in the papers: while a boundary is on disk only, memory holds nothing that waits but the
// chain's input. Costs in m units beside the input, C(i,l,m) as in recursion.h, m(i) = m - a(i) (m(0) = m), d bytes of disk free:
//   K(i,l,d), boundary i in memory (kept):    min( C(i,l,m(i)), W(i) + S(i,l,d-a(i)), stay over K )
//   S(i,l,d), in memory and on disk (spilled): min( C(i,l,m(i)), min over j of F(i..j-1) + K(j,l,d) + R(i) + S(i,j-1,d), stay over S )
//   stay over X: min over j of F(i..j-1) + C(j,l,m(i)-a(j)) + X(i,j-1,d)
// where an advance asks m(i) for what recursion.h's asks. The input never leaves memory: W(0) = R(0) = 0, and the answer is
// S(0,L-1,D). The papers have no `stay`, which reads less or writes later; there the input lies on disk like any other.
#pragma once

#include <functional>
#include <vector>

#include "tools/schedule/chain.h"
#include "tools/schedule/recursion.h"

namespace reprise {

// What is known about doing links i..l in memory alone.
struct MemoryLevel {
  std::function<double(int i, int l, int64_t m)> cost;  // C(i,l,m); infinite below the least m
  std::function<void(int i, int l, int64_t m, std::vector<Action>& list)> append;
};

struct TwoLevelPlan {
  double makespan = 0;  // scaled as the units' costs are
  std::vector<Action> actions = {};
};

// `memory`: units beside the input. Where the disk is too small for the best plan without that limit, sizes on it are
// rounded up to a unit of about a 64th.
TwoLevelPlan solve_two_levels(const Chain& chain, const UnitChain& units, const Bounds& bounds, int64_t memory, const DiskLevel& disk,
                              const MemoryLevel& memory_level);

}  // namespace reprise
