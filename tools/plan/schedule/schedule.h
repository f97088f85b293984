// Every published strategy with one signature: chain and budget in, typed actions out. compare,
// plan and fit choose a strategy by name only; each strategy is one file of this folder (PLANNING
// 4).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/plan/schedule/chain.h"

namespace reprise {

struct ScheduleRequest {
  std::string strategy = "optimal";
  uint64_t memory_bytes = UINT64_MAX;  // the chain's input included
  uint64_t unit = 0;  // optimal: bytes per memory unit, as a hint; 0: the strategy chooses aligned units
  // every-k: links per segment; sqrt: segments; chen-recursive: boundaries kept per level. 0: the
  // strategy chooses.
  int k = 0;
  int slots = 0;                       // revolve: number of checkpoints, the input included; 0: the cheapest that fits
  // The second level, of any kind, for strategies with takes_disk(); 0 bytes: none.
  DiskLevel disk = {};
  // Policies: the links at which segments begin, in increasing order from 0. They replace the
  // strategy. Empty: none.
  std::vector<int> starts = {};
  bool residues = true;                // optimal: true to use residues (PLANNING 5) if the chain lists them
  bool as_published = false;  // optimal: true for Rotor's published recursion, whose memory bound can be too small
};

// Returns all values of ScheduleRequest::strategy, in the order in which `compare` prints them.
const std::vector<std::string>& strategy_names();

// True if the strategy may keep boundaries on disk.
bool takes_disk(const std::string& name);
// True if the strategy chooses the boundaries that it keeps on disk. every-k and sqrt do not
// choose: they put all kept boundaries there.
bool chooses_for_disk(const std::string& name);

// Returns the strategy's schedule. An infeasible request is not an error: feasible is false, and
// smallest_memory is set if it can be computed. Throws UserError for: an unknown strategy; a
// parameter that the strategy does not have; an invalid chain (no link, a link without a tape,
// links with different numbers of modes, a loss with an output).
Schedule make_schedule(const Chain& chain, const ScheduleRequest& request);

}  // namespace reprise
