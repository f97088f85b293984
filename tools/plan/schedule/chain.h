// The chain of links that a schedule works on, and the typed actions of a schedule. These are the
// only types that the graph, the schedule and the layout share (DESIGN 1, PLANNING 4 and 5).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace reprise {

// A set of values that a link's backward reads from the forward pass, with the link's output.
struct Tape {
  uint64_t bytes = 0;                  // bytes of all values of the tape, the output included
  double backward_cost = 0;            // recomputation inside the link included
  uint64_t scratch_bytes = 0;          // scratch of the backward
  uint64_t forward_scratch_bytes = 0;  // scratch of the forward that records this tape

  bool operator==(const Tape&) const = default;
};

// Inner values kept from a link's forward until its backward, without the output (PLANNING 5).
struct Residue {
  uint64_t bytes = 0;
  double forward_cost = 0;  // cost of each later forward of the link that keeps only the output
  // Entry t: cost of the forward that records tape t from this residue. Empty: forward_cost for
  // all.
  std::vector<double> record_costs = {};
  // Entry t: bytes of tape t and the residue together, output included. Empty: see
  // Link::tape_bytes().
  std::vector<uint64_t> tape_bytes = {};

  bool operator==(const Residue&) const = default;
  double record_cost(int tape) const {
    return record_costs.empty() ? forward_cost : record_costs[static_cast<size_t>(tape)];
  }
};

struct Link {
  std::string name;
  double forward_cost = 0;
  uint64_t boundary_bytes = 0;         // bytes of the link's output; 0 for the loss, which is the last link
  uint64_t forward_scratch_bytes = 0;  // scratch of a forward that keeps only the output
  std::vector<Tape> tapes;             // Pareto front; tapes[0] is the largest and keeps everything
  std::vector<Residue> residues;       // entry k is mode k

  // Returns the bytes of tape `choice` and of the residue of `mode` (-1: none), which is kept as
  // long as the tape. A value in both counts once. If the residue lists no tape_bytes, tapes[0]
  // counts as containing the residue, and a thinner tape as sharing nothing with it.
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
  // Returns a(i): bytes of boundary i, the input of link i; a(length) is the loss's output.
  uint64_t boundary_bytes(int i) const { return i == 0 ? input_bytes : links[i - 1].boundary_bytes; }
};

// A second level of memory below the first. Costs are per byte, in the unit of the chain's costs.
struct DiskLevel {
  uint64_t bytes = 0;
  double write_cost = 0;
  double read_cost = 0;
};

// Maximum links of a chain in a file and for "optimal", whose tables contain all pairs of links.
constexpr int kLongestChain = 4096;

// Kind of a schedule's action. Boundary 0 is live from the start and never leaves memory. The
// schedule ends with the backward of link 0.
enum class ActionKind : uint8_t {
  // Runs links first..last-1 forward from boundary `first`. Boundary `last` is kept; the boundaries
  // between are computed and not kept.
  kAdvance,
  // Runs link `first` forward and keeps tape `choice`, which contains the output, boundary first+1.
  kRecord,
  // Runs link `first` backward: gradient of boundary first+1 -> gradient of boundary first. Frees
  // the tape.
  kBackward,
  // Frees boundary `first` in memory, which an advance kept or a read returned. Waits for the end
  // of its write to disk, if there is one.
  kDrop,
  // Starts to copy boundary `first`, which an advance kept, to disk. The copy lasts until the
  // backward of link `first`.
  kWrite,
  // Reads boundary `first`, which was dropped, from disk. From then on it counts as the boundary
  // that was kept last.
  kRead,
};

struct Action {
  ActionKind kind = ActionKind::kAdvance;
  int first = 0;
  int last = 0;     // advance only
  int choice = -1;  // record: index into tapes; advance: residue mode, -1 for none

  bool operator==(const Action&) const = default;
};

// Result of a strategy. If infeasible, there are no actions, and smallest_memory is the minimum
// memory that would be enough (0: unknown).
struct Schedule {
  bool feasible = false;
  std::vector<Action> actions;
  double makespan = 0;           // sum of the costs of all actions
  uint64_t peak_bytes = 0;       // as simulate() counts it, the input included
  uint64_t disk_bytes = 0;       // maximum on disk at once
  uint64_t smallest_memory = 0;
};

}  // namespace reprise
