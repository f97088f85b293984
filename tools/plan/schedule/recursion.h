// Computes the memory that each branch of the recursion of `optimal` needs, and the minimum memory
// in which the recursion is feasible. The cost tables use both. So does the plan for the smallest
// budget, which needs no table and is exact in bytes.
//
//   C(i,l,m): minimum cost to bring the gradient of boundary l+1 back to boundary i in m units in
//     addition to boundary i.
//   C_k(i,l,m): as C while links i..l keep their residues of mode k, which m includes.
//   D(i,j,m): as C for links i..j while the tape of link j is kept, which m includes, and boundary
//     j is not kept: it is computed again.
//     D(j,j,m) = B(j); D(i,j,m) = min( F(i) + B(i) + D(i+1,j,m-tape(i)),
//       min over i<k<=j of [ F(i..k-1) + D(k,j,m-a(k)) + C(i,k-1,m) ] )
//     C(i,l,m) also tries, over i<j<l: F(i..j) + C(j+1,l,m-tape(j)) + D(i,j,m). The tape that D
//     keeps is always tapes[0], without a residue.
//
// F and B are the costs of a link's forward and backward. a(k) is the units of boundary k, and
// tape(i) those of a tape of link i. PLANNING 4 and 5; Beaumont et al., arXiv 1911.13214.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/plan/schedule/chain.h"
#include "tools/plan/schedule/units.h"

namespace reprise {

constexpr int kPlain = -1;     // mode of table C, which has no residues
constexpr int kKeptTape = 0;   // index of the tape that D keeps
// Maximum links that run again while D keeps a tape: longer ranges cost time and gain almost
// nothing.
constexpr int kMaxSkips = 32;
// Maximum links over which one pass writes residues: C_k of longer ranges costs time and changes
// almost nothing.
constexpr int kMaxLaid = 64;

// Returns the index of the pair i <= l in a table of all pairs.
inline int64_t pair_index(int length, int i, int l) {
  return static_cast<int64_t>(i) * length - static_cast<int64_t>(i) * (i - 1) / 2 + (l - i);
}
inline int64_t pair_count(int length) { return pair_index(length, length - 1, length - 1) + 1; }

class Bounds {
 public:
  Bounds(const UnitChain& chain, int modes, bool as_published);  // keeps a reference to the chain

  // Returns the units that the residues of mode k of links i..l take together. The residues are
  // contiguous, so only their sum is rounded up.
  int64_t residues(int mode, int i, int l) const {
    return mode == kPlain ? 0 : residues_[mode][pair_index(chain_.length(), i, l)];
  }
  double forward(int mode, int i, int j) const {
    const std::vector<double>& prefix = mode == kPlain ? chain_.forward_prefix : chain_.residue_forward_prefix[mode];
    return prefix[j] - prefix[i];
  }
  int64_t tape(int mode, int i, int t) const { return chain_.links[i].tapes[t].size[mode + 1]; }

  // Returns the minimum m of C or C_k to run link i alone with tape t.
  int64_t single(int mode, int i, int t) const;
  // Returns the minimum m of C or C_k to record tape t, process i+1..l and run the backward of i.
  // `kept`: units that are occupied in addition while the tape is recorded. The published bound
  // omits a case and can be too small (PLANNING 4).
  int64_t keep_tape(int mode, int i, int l, int t, int64_t kept = 0) const;
  // Returns the minimum m of C or C_k to advance from i to j.
  int64_t advance(int mode, int i, int j, int l) const {
    return chain_.boundary[l + 1] + pass(i, last_passed(j, l)) + residues(mode, i, l);
  }
  // Returns the minimum m of C to advance from i to j and record link j with a tape that D keeps.
  int64_t hold(int i, int j, int l) const {
    const UnitTape& kept = chain_.links[j].tapes[kKeptTape];
    return chain_.boundary[l + 1] + std::max(pass(i, j), chain_.boundary[j] + kept.size[0] + kept.forward_scratch);
  }
  // Returns the minimum m of D to run the backward of j.
  int64_t kept_backward(int j) const { return single_backward(kPlain, j, kKeptTape); }
  // Returns the minimum m of C to advance from i to j and write the residues of mode k over i..j-1.
  // The result is at least advance() in kPlain. So residues do not lower a range's minimum memory,
  // and MinMemory need not consider them.
  int64_t lay(int mode, int i, int j, int l) const {
    return chain_.boundary[l + 1] + pass(i, last_passed(j, l)) + residues(mode, i, j - 1);
  }

 private:
  // Returns the last boundary that counts for an advance to j: j itself or, as published, always l,
  // the furthest one.
  int last_passed(int j, int l) const { return as_published_ ? l : j; }
  int64_t single_backward(int mode, int i, int t) const;
  int64_t pass(int i, int j) const { return pass_[static_cast<size_t>(i) * (chain_.length() + 1) + j]; }

  const UnitChain& chain_;
  bool as_published_;
  std::vector<std::vector<int64_t>> residues_;  // indexed by mode and pair_index()
  // Indexed by i and j: maximum units of transient boundaries and scratch while links i..j-1 run,
  // without boundary i.
  std::vector<int64_t> pass_;
};

// The minimum m for which C (or C_k) is finite, for each i..l; INT64_MAX if C_k has no table for
// i..l. It needs no table over m, so that it is exact in any unit.
class MinMemory {
 public:
  MinMemory(const UnitChain& chain, const Bounds& bounds, int modes);  // keeps both references
  int64_t at(int mode, int i, int l) const { return least_[mode + 1][pair_index(chain_.length(), i, l)]; }

  // Returns a plan without residues in `memory` units, at least at(kPlain, 0, length - 1). The plan
  // is not optimal: branches are compared by the costs that their ranges have in minimum memory.
  std::vector<Action> plan(int64_t memory) const;

 private:
  struct MinBranch {
    int boundary = -1, tape = -1;  // one of the two is set: the boundary to advance to, or the tape to keep
    int64_t minimum = 0;
    double cost = 0;
  };
  template <class Use>
  void for_each_branch(int mode, int i, int l, Use use) const;
  void fill(int mode);
  void trace(int i, int l, int64_t memory, std::vector<Action>& list) const;

  const UnitChain& chain_;
  const Bounds& bounds_;
  std::vector<std::vector<int64_t>> least_;
  std::vector<double> cost_;  // cost of the cheapest plan in minimum memory, without residues
};

}  // namespace reprise
