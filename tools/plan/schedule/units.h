// A chain in memory units, as the dynamic programme of `optimal` reads it, and the choice of the
// unit. A unit that divides the large sizes wastes little, even if it is coarse (PLANNING 5).
#pragma once

#include <cstdint>
#include <vector>

#include "tools/plan/schedule/chain.h"

namespace reprise {

struct UnitChoice {
  uint64_t unit = 1;  // bytes
  // Bytes. A size whose remainder after division by `unit` is at most `pool` is rounded down, and a
  // reserve includes the remainder. Other sizes are rounded up.
  uint64_t pool = 0;

  bool operator==(const UnitChoice&) const = default;
};

struct UnitTape {
  std::vector<int64_t> size;  // units; entry 0: without a residue, entry k + 1: with the residue of mode k
  std::vector<double> record_cost;  // cost of the forward that records it; entries as in `size`
  double backward_cost = 0;
  int64_t scratch = 0;
  int64_t forward_scratch = 0;
};

struct UnitLink {
  int64_t forward_scratch = 0;
  std::vector<UnitTape> tapes;
};

struct UnitChain {
  uint64_t unit = 1;
  uint64_t fixed_bytes = 0;        // the input, and the reserve for all remainders that were rounded down
  std::vector<int64_t> boundary;   // entry i: units of boundary i; length + 1 entries
  std::vector<UnitLink> links;
  // Per link: the last link of the repeated part that contains it; the link itself if there is
  // none.
  std::vector<int> repeat_end;
  // Per link: number of links in one period of its repeated part: 1 if all links are equal, 2 if
  // for example attention and MLP alternate.
  std::vector<int> repeat_period;
  // Power of two by which the chain's costs are multiplied, so that floats can represent them.
  double cost_scale = 1;
  std::vector<double> forward_prefix;                       // entry j: forward cost of links 0..j-1
  std::vector<std::vector<uint64_t>> residue_bytes_prefix;  // per mode; entry j: bytes of the residues of links 0..j-1
  // per mode; entry j: forward cost of links 0..j-1 with residues
  std::vector<std::vector<double>> residue_forward_prefix;

  int length() const { return static_cast<int>(links.size()); }
  // Returns the maximum number of links by which the range i..l can move right onto equal links.
  // Ranges that move to the same range share its values.
  int shift(int i, int l) const {
    const int end = repeat_end[i];
    return repeat_end[l] == end ? (end - l) / repeat_period[i] * repeat_period[i] : 0;
  }
  // Returns the units of a budget without fixed_bytes; -1 if the budget is smaller. The result is
  // limited to the units that any schedule could use.
  int64_t memory(uint64_t budget_bytes) const;
};

UnitChain chain_in_units(const Chain& chain, const UnitChoice& choice);

// Returns the greatest common divisor of all sizes: the unit that loses nothing.
uint64_t exact_unit(const Chain& chain);

// Returns a unit between `finest` and about four times `finest` that divides the large sizes: the
// coarsest whose waste is within 1e-3 of the minimum. Returns `finest` if no unit is better.
UnitChoice aligned_unit(const Chain& chain, uint64_t finest);

}  // namespace reprise
