// Simulates actions over a chain: counts memory as PLANNING 4 does (Rotor's bounds) and checks that
// each action may read its inputs. Every strategy's peak and makespan are computed here, so that
// they are comparable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "tools/plan/schedule/chain.h"

namespace reprise {

struct Simulation {
  bool valid = false;
  std::string fault;        // why the action at `fault_action` is refused, or what is live at the end; "" if valid
  size_t fault_action = 0;  // from 0; the number of actions if the fault is at the end; unset if valid
  double makespan = 0;      // sum of the costs of all actions
  uint64_t peak_bytes = 0;  // input, gradients, boundaries, tapes, residues and scratch
  uint64_t disk_bytes = 0;  // maximum on disk at once
};

// Simulates the actions. Boundary 0 and the gradient of the loss's output (0 bytes) are live from
// the start. A gradient lives until the backward that reads it ends. An advance reserves all its
// new residues before its first link. Copies on disk are nested: a boundary may be written only if
// its index is higher than that of every boundary on disk. Only the costs of `disk` are used. A
// write counts its full time, though it overlaps the advance that follows; the makespan is then an
// upper bound.
Simulation simulate(const Chain& chain, std::span<const Action> actions, const DiskLevel& disk = {});

// Returns the cost of a step that stores everything: each link's forward, and the backward that
// reads its full tape.
double store_all_cost(const Chain& chain);

}  // namespace reprise
