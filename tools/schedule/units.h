// A chain measured in memory units, as the dynamic programme of `optimal` needs it, and the choice of those units.
// Alignment of the unit beats its fineness (PLANNING 5): units that divide the large sizes waste little.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/schedule/chain.h"

namespace reprise {

struct UnitChoice {
  uint64_t unit = 1;  // bytes
  uint64_t pool = 0;  // remainders up to this many bytes are rounded down and counted once in a reserve; the others up

  bool operator==(const UnitChoice&) const = default;
};

struct UnitTape {
  std::vector<int64_t> size;  // entry 0 without a residue, entry k + 1 with the residue of mode k
  std::vector<double> record_cost;  // of the forward that records it, in the same order
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
  uint64_t fixed_bytes = 0;        // the input, and the reserve that pays for all that was rounded down
  std::vector<int64_t> boundary;   // length + 1 entries
  std::vector<UnitLink> links;
  std::vector<int> repeat_end;     // per link: the last of the part around it that repeats itself; the link itself where none does
  std::vector<int> repeat_period;  // and after how many links: 1 for equal links, 2 where attention and MLP take turns
  double cost_scale = 1;                                    // costs are the chain's times this power of two: floats hold them
  std::vector<double> forward_prefix;                       // cost of links 0..j-1
  std::vector<std::vector<uint64_t>> residue_bytes_prefix;  // per mode: bytes of residues of links 0..j-1
  std::vector<std::vector<double>> residue_forward_prefix;  // per mode: cost of links 0..j-1 with residues held

  int length() const { return static_cast<int>(links.size()); }
  // By how many links the range i..l can move right onto equal links, as far as that goes: ranges of one such place share their values.
  int shift(int i, int l) const {
    const int end = repeat_end[i];
    return repeat_end[l] == end ? (end - l) / repeat_period[i] * repeat_period[i] : 0;
  }
  // Units that a budget leaves beside fixed_bytes; -1 if it does not hold those. No more than any schedule could use.
  int64_t memory(uint64_t budget_bytes) const;
};

UnitChain chain_in_units(const Chain& chain, const UnitChoice& choice);

// The greatest common divisor of all sizes: the unit that loses nothing.
uint64_t exact_unit(const Chain& chain);

// Of the units from `finest` to about four times that which divide the large sizes, the coarsest that wastes next to nothing more
// than the best of them; `finest` where none does.
UnitChoice aligned_unit(const Chain& chain, uint64_t finest);

}  // namespace reprise
