// Walks actions over a chain: the accounting of PLANNING 4 (Rotor's bounds) and the judge of what a schedule may read.
// Every strategy's peak and makespan come from here, so that they can be compared.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tools/schedule/chain.h"

namespace reprise {

struct Simulation {
  bool valid = false;
  std::string fault;        // of the first action that reads what is not live, or what is left live at the end
  double makespan = 0;      // sum of the costs of all actions
  uint64_t peak_bytes = 0;  // input, gradients, boundaries, tapes, residues and scratch
  uint64_t disk_bytes = 0;  // most that lies on disk at once
};

// Live from the start: boundary 0 and the gradient of the loss's output (0 bytes). A gradient lives until the backward that
// reads it ends; an advance reserves all its new residues before its first link. Copies on disk are nested: only the boundary
// behind all that lie there may be written. Of `disk` only the costs count: a write costs its full time, though it overlaps the
// advance that follows it, so the makespan is an upper bound there.
Simulation simulate(const Chain& chain, std::span<const Action> actions, const DiskLevel& disk = {});

}  // namespace reprise
