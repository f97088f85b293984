// What every branch of the recursion of `optimal` asks of memory, and the least memory in which it is feasible at all.
// Shared by the cost tables and by the plan for the smallest budget, which needs no table and is exact in bytes.
//
//   C(i,l,m): least cost to bring the gradient of boundary l+1 back to boundary i in m units beside boundary i.
//   C_k(i,l,m): the same while links i..l hold their residues of mode k, which m includes.
//   D(i,j,m): the same for links i..j while the tape of link j is held, which m includes, and boundary j is not: it is made again.
//     D(j,j,m) = B(j); D(i,j,m) = min( min over i<k<=j of [ F(i..k-1) + D(k,j,m-a(k)) + C(i,k-1,m) ], F(i) + B(i) + D(i+1,j,m-tape(i)) )
//     C(i,l,m) also takes, over i<j<l: F(i..j) + C(j+1,l,m-tape(j)) + D(i,j,m). So only tapes[0] is held, and over no residue.
// PLANNING 4 and 5; Beaumont et al., arXiv 1911.13214.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/schedule/chain.h"
#include "tools/schedule/units.h"

namespace reprise {

constexpr int kPlain = -1;     // the mode of C
constexpr int kHeldTape = 0;   // the one of a link's tapes that D holds
constexpr int kMostHeld = 32;  // links that are run again at most while D holds a tape: longer ranges cost time and gain nothing
constexpr int kMostLaid = 64;  // links over which one pass lays residues: C_k of longer ranges costs time and changes next to nothing

// Where the pair i <= l stands in a table of all pairs.
inline int64_t pair_index(int length, int i, int l) {
  return static_cast<int64_t>(i) * length - static_cast<int64_t>(i) * (i - 1) / 2 + (l - i);
}
inline int64_t pair_count(int length) { return pair_index(length, length - 1, length - 1) + 1; }

class Bounds {
 public:
  Bounds(const UnitChain& chain, int modes, bool as_published);  // keeps a reference to the chain

  // Units of residues of mode k over links i..l, which lie one behind the other: rounded up once, not link by link.
  int64_t residues(int mode, int i, int l) const { return mode == kPlain ? 0 : residues_[mode][pair_index(chain_.length(), i, l)]; }
  double forward(int mode, int i, int j) const {
    const std::vector<double>& prefix = mode == kPlain ? chain_.forward_prefix : chain_.residue_forward_prefix[mode];
    return prefix[j] - prefix[i];
  }
  int64_t tape(int mode, int i, int t) const { return chain_.links[i].tapes[t].size[mode + 1]; }

  // What C or C_k asks of m to run link i alone with tape t.
  int64_t single(int mode, int i, int t) const;
  // ... to record tape t first, then do i+1..l, then the backward of i; `held` lies beside it at first. As published this has a hole (PLANNING 4).
  int64_t keep_tape(int mode, int i, int l, int t, int64_t held = 0) const;
  // ... to advance from i to j.
  int64_t advance(int mode, int i, int j, int l) const {
    return chain_.boundary[l + 1] + pass(i, last_passed(j, l)) + residues(mode, i, l);
  }
  // What C asks of m to advance from i to j and record j there, and D to run the backward of j.
  int64_t hold(int i, int j, int l) const {
    const UnitTape& held = chain_.links[j].tapes[kHeldTape];
    return chain_.boundary[l + 1] + std::max(pass(i, j), chain_.boundary[j] + held.size[0] + held.forward_scratch);
  }
  int64_t held_backward(int j) const { return single_backward(kPlain, j, kHeldTape); }
  // ... to lay residues of mode k over i..j-1 while advancing to j. Never less than advance of kPlain, so that residues do not
  // lower the least memory of a range, and LeastMemory need not look at them.
  int64_t lay(int mode, int i, int j, int l) const {
    return chain_.boundary[l + 1] + pass(i, last_passed(j, l)) + residues(mode, i, j - 1);
  }

 private:
  // As published, an advance to any boundary asks for what the furthest one would.
  int last_passed(int j, int l) const { return as_published_ ? l : j; }
  int64_t single_backward(int mode, int i, int t) const;
  int64_t pass(int i, int j) const { return pass_[static_cast<size_t>(i) * (chain_.length() + 1) + j]; }

  const UnitChain& chain_;
  bool as_published_;
  std::vector<std::vector<int64_t>> residues_;  // by mode and pair_index
  std::vector<int64_t> pass_;                   // by i and j: most that transients and scratch of links i..j-1 take, boundary i not counted
};

// Least m for which C (or C_k) is finite, for every i..l; the largest number where C_k is not tabulated. It needs no table over m,
// so it is exact at any unit.
class LeastMemory {
 public:
  LeastMemory(const UnitChain& chain, const Bounds& bounds, int modes);  // keeps both references
  int64_t at(int mode, int i, int l) const { return least_[mode + 1][pair_index(chain_.length(), i, l)]; }

  // A plan without residues that is feasible from m = at(kPlain, 0, length - 1) on. Its cost is least among the plans in which
  // every range runs in its own least memory where no cheaper branch is seen to fit: no optimum.
  std::vector<Action> plan(int64_t memory) const;

 private:
  struct LeastBranch {
    int boundary = -1, tape = -1;  // advance to a boundary, or keep a tape
    int64_t least = 0;
    double cost = 0;
  };
  template <class Use>
  void for_each_branch(int mode, int i, int l, Use use) const;
  void fill(int mode);
  void trace(int i, int l, int64_t memory, std::vector<Action>& list) const;

  const UnitChain& chain_;
  const Bounds& bounds_;
  std::vector<std::vector<int64_t>> least_;
  std::vector<double> cost_;  // of the cheapest plan in least memory, without residues
};

}  // namespace reprise
