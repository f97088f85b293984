// The chain of links a schedule works on, and the typed actions it answers with.
// It is the one value that crosses from graph to schedule to layout (DESIGN 1, PLANNING 4 and 5).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace reprise {

// What a link's backward reads from the forward pass, the link's own output included.
struct Tape {
  uint64_t bytes = 0;                  // output included
  double backward_cost = 0;            // recomputation inside the link included
  uint64_t scratch_bytes = 0;          // of the backward
  uint64_t forward_scratch_bytes = 0;  // of the forward that records this tape

  bool operator==(const Tape&) const = default;
};

// Inner values kept from a link's forward until its backward, without the output (PLANNING 5).
struct Residue {
  uint64_t bytes = 0;
  double forward_cost = 0;  // of every later forward of the link that keeps only the output
  std::vector<double> record_costs = {};  // per tape: of the forward that records it over this residue; empty: forward_cost
  std::vector<uint64_t> tape_bytes = {};  // per tape: of it and this residue together, output included; empty: see Link

  bool operator==(const Residue&) const = default;
  double record_cost(int tape) const { return record_costs.empty() ? forward_cost : record_costs[static_cast<size_t>(tape)]; }
};

struct Link {
  std::string name;
  double forward_cost = 0;
  uint64_t boundary_bytes = 0;         // of the link's output; 0 for the loss, which is the last link
  uint64_t forward_scratch_bytes = 0;  // of a forward that keeps only the output
  std::vector<Tape> tapes;             // Pareto front, tapes[0] the largest: everything kept
  std::vector<Residue> residues;       // entry k is mode k

  // Of tape `choice` while the residue of `mode` (-1: none) is held until the tape's end. A value in both counts once: where the
  // residue does not say, the full tape, tapes[0], contains it and a thinner one shares nothing with it.
  uint64_t tape_bytes(int choice, int mode) const {
    const uint64_t own = tapes[static_cast<size_t>(choice)].bytes;
    if (mode < 0) return own;
    const Residue& residue = residues[static_cast<size_t>(mode)];
    if (!residue.tape_bytes.empty()) return residue.tape_bytes[static_cast<size_t>(choice)];
    return choice == 0 ? std::max(own, boundary_bytes + residue.bytes) : own + residue.bytes;
  }
};

struct Chain {
  uint64_t input_bytes = 0;
  std::vector<Link> links;

  int length() const { return static_cast<int>(links.size()); }
  // a(i): bytes of boundary i, the input of link i; a(length) is the loss's output.
  uint64_t boundary_bytes(int i) const { return i == 0 ? input_bytes : links[i - 1].boundary_bytes; }
};

// A second level of memory under the first. Costs are per byte, in the unit of the chain's costs.
struct DiskLevel {
  uint64_t bytes = 0;
  double write_cost = 0;
  double read_cost = 0;
};

// Links of the longest chain that a file may list and that "optimal" plans: its tables are of all pairs of links.
constexpr int kLongestChain = 4096;

// One typed action of a schedule. Boundary 0 is live from the start and never leaves memory; the schedule ends with backward of link 0.
enum class ActionKind : uint8_t {
  kAdvance,   // run links first..last-1 forward; boundary `last` stays, the ones between are transient. Reads boundary `first`.
  kRecord,    // run link `first` forward and keep tape `choice` (the output, boundary first+1, is part of the tape)
  kBackward,  // run link `first` backward: gradient of boundary first+1 -> gradient of boundary first; frees the tape
  kDrop,      // free boundary `first` in memory, which an advance kept or a read brought back; waits for its write
  kWrite,     // boundary `first`, which an advance kept, starts to go to disk; the copy there lasts until the backward of link `first`
  kRead,      // the disk's copy of boundary `first`, dropped before, comes back as the latest kept
};

struct Action {
  ActionKind kind = ActionKind::kAdvance;
  int first = 0;
  int last = 0;     // advance only
  int choice = -1;  // record: index into tapes; advance: residue mode, -1 for none

  bool operator==(const Action&) const = default;
};

// What a strategy answers. Infeasible: no actions, and `smallest_memory` names the least memory that would do (0: unknown).
struct Schedule {
  bool feasible = false;
  std::vector<Action> actions;
  double makespan = 0;           // sum of the costs of all actions
  uint64_t peak_bytes = 0;       // as simulate() counts it, the input included
  uint64_t disk_bytes = 0;       // most that lies on disk at once
  uint64_t smallest_memory = 0;
};

}  // namespace reprise
