// The recursion over boundaries on disk: H-Revolve's two levels, for links that differ, on top of
// the tables of `optimal`. The strategy is schedule_hrevolve() in optimal.cpp. The papers' cost of
// equal steps, for comparison in the tests, is in two_level_steps.h. The recursion is separate from
// the tables because it reads only single values of them. Herrmann and Pallez, "H-Revolve", ACM
// TOMS 46 (2020); Aupy, Herrmann, Hovland and Robert, "Optimal multistage algorithm for adjoint
// computation", SIAM J. Sci. Comput. 38 (2016).
//
// As in the papers, the disk is the outer level: while a boundary is only on disk, memory keeps no
// other boundary for later except the chain's input. There are m units of memory in addition to the
// input. C(i,l,m) is as in recursion.h; m(i) = m - a(i), m(0) = m; d bytes of disk are free. The
// costs are:
//   K(i,l,d), boundary i in memory (kept):
//     min( C(i,l,m(i)), W(i) + S(i,l,d-a(i)), stay over K )
//   S(i,l,d), boundary i in memory and on disk (spilled):
//     min( C(i,l,m(i)), min over j of F(i..j-1) + K(j,l,d) + R(i) + S(i,j-1,d), stay over S )
//   stay over X (boundary i stays in memory):
//     min over j of F(i..j-1) + C(j,l,m(i)-a(j)) + X(i,j-1,d)
// An advance needs as much of m(i) as in recursion.h. The input never leaves memory: W(0) = R(0) =
// 0, and the result is S(0,L-1,D). The papers have no `stay`, which saves reads or postpones
// writes, and in the papers the input is also on disk.
#pragma once

#include <functional>
#include <vector>

#include "tools/plan/schedule/chain.h"
#include "tools/plan/schedule/recursion.h"

namespace reprise {

// Costs and actions of links i..l in memory alone.
struct MemoryLevel {
  std::function<double(int i, int l, int64_t m)> cost;  // C(i,l,m); infinite below the minimum m
  std::function<void(int i, int l, int64_t m, std::vector<Action>& list)> append;
};

struct TwoLevelPlan {
  double makespan = 0;  // multiplied by the cost_scale of the units
  std::vector<Action> actions = {};
};

// Returns the cheapest plan in `memory` units in addition to the input. First plans without a limit
// on the disk. If that plan does not fit the disk, plans again with the sizes on disk rounded up to
// a unit. The disk has at most 64 such units.
TwoLevelPlan solve_two_levels(const Chain& chain, const UnitChain& units, const Bounds& bounds, int64_t memory,
                              const DiskLevel& disk, const MemoryLevel& memory_level);

}  // namespace reprise
