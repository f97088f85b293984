// Every strategy of the field behind one signature: chain and budget in, typed actions out.
// compare, plan and fit choose among strategies by name only; each strategy is one file beside this one (PLANNING 4).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/schedule/chain.h"

namespace reprise {

struct ScheduleRequest {
  std::string strategy = "optimal";
  uint64_t memory_bytes = UINT64_MAX;  // counts the chain's input
  uint64_t unit = 0;                   // bytes per memory unit of `optimal`: a hint; 0 lets it choose aligned units
  int k = 0;                           // every-k: links per segment; sqrt: segments; chen-recursive: boundaries kept per
                                       // level; 0: the strategy chooses
  int slots = 0;                       // revolve: checkpoints, the input's included; 0: the cheapest number that fits
  DiskLevel disk = {};                 // the second level, whatever it is made of: of strategies that takes_disk(); no bytes: none
  std::vector<int> starts = {};        // a policy's: the links at which segments begin, 0 the first, in the strategy's stead; empty: none
  bool residues = true;                // optimal: use PLANNING 5 where the chain lists residues
  bool as_published = false;           // optimal: Rotor's recursion with its hole
};

// The names that `strategy` may take, in the order in which `compare` prints them.
const std::vector<std::string>& strategy_names();

// Whether that strategy may keep boundaries on disk, and whether it chooses which: every-k and sqrt put all that they keep there.
bool takes_disk(const std::string& name);
bool chooses_for_disk(const std::string& name);

// Infeasible is an answer, not an error: feasible = false and smallest_memory where it can be computed.
// Throws UserError for an unknown strategy, a parameter that the strategy cannot take, or a chain that is not one
// (no link, a link without a tape, modes of different number, a loss with an output).
Schedule make_schedule(const Chain& chain, const ScheduleRequest& request);

}  // namespace reprise
