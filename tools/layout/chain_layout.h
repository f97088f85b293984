// Where every block of a chain schedule lives: two stacks and one floating gradient (PLANNING 6).
// It turns typed actions into byte offsets whose highest end is the schedule's peak, not a byte more.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/schedule/chain.h"

namespace reprise {

// Before the action the gradient's bytes go from `from` to `to` (memmove semantics: the two may overlap).
struct GradientMove {
  uint64_t from = 0;
  uint64_t to = 0;
  uint64_t bytes = 0;
};

// One link of an advance. `residue` counts only in a residue mode; it is the same address in every pass over the link.
struct LinkPlacement {
  uint64_t output = 0;   // boundary u+1, boundary_bytes(u+1) long
  uint64_t scratch = 0;  // forward_scratch_bytes long
  uint64_t residue = 0;  // residues[choice].bytes long
};

// Offsets in bytes. What each kind fills in:
//   kAdvance   links, one per link first..last-1; the last output stays, the others die with the link that reads them.
//   kRecord    tape: the block that this action writes, tape_bytes long, the output (boundary first+1) in front.
//              residue: where the link's residue lies if an earlier advance laid it down (residue_bytes > 0). It stays
//              there until the backward, and what it has of the tape is not in the tape's block. Never less than the output.
//              scratch: tape.forward_scratch_bytes.
//   kBackward  tape, residue as its record wrote them; new_gradient, boundary_bytes(first) long; scratch: tape.scratch_bytes.
//   kDrop      nothing.
//   kWrite     disk.
//   kRead      links, one: the output is boundary `first`; disk, as its write has it.
struct ActionPlacement {
  std::vector<GradientMove> moves;  // at most one, before the action; never of 0 bytes
  uint64_t input = 0;               // boundary `first`, which the action reads (advance, record, backward, write) or frees (drop)
  uint64_t gradient = 0;            // of the gradient that is live during the action, after its move
  uint64_t gradient_bytes = 0;
  std::vector<LinkPlacement> links;
  uint64_t tape = 0;
  uint64_t tape_bytes = 0;
  uint64_t residue = 0;
  uint64_t residue_bytes = 0;
  uint64_t new_gradient = 0;
  uint64_t scratch = 0;
  uint64_t disk = 0;                // offset of boundary `first` in the spill file
};

struct ChainLayout {
  std::vector<ActionPlacement> actions;  // parallel to the schedule's
  uint64_t packed_bytes = 0;             // highest end of all blocks
  uint64_t peak_bytes = 0;               // largest sum of live bytes; a pass in a residue mode reserves all its residues at once
  uint64_t move_bytes = 0;               // sum over all moves
  uint64_t disk_bytes = 0;               // highest end of a block on disk: the most that lies there at once
};

// The input boundary lies at 0. Sizes are any integers (alignment 1; round them up beforehand for another).
// Live at once: a(0), kept boundaries, tapes, residues and the gradient of boundary l+1 inside a range ..l; in an advance the
// transients a(u) (u > first) and a(u+1) and link u's scratch; in a record its scratch; in a backward the old and the new
// gradient and its scratch. The loss's output and its gradient have chain.links.back().boundary_bytes (0) bytes.
// packed_bytes == peak_bytes for every schedule; among all layouts on these stacks the moved bytes are least.
// Boundaries go on the top stack, but one that outlives the boundary it was advanced from (which went to disk and is dropped
// first) goes on the other stack than that: so every drop pops a stack, and nothing slides. No schedule here does that over links that
// hold residues already, which would be popped beneath it: refused. Copies on disk are a stack of their own.
// A tape that outlives its link's input (dropped right after the record, and made again before the backward) goes on the bottom
// stack: all residues laid on it are popped first. Its own link may hold none: refused.
// Throws std::logic_error for actions that are no nested recursion (an input that is not the latest kept value, a backward
// out of order, a residue mode that differs from the one held, a drop without a copy on disk before the backwards that read it, an
// end before link 0's backward).
ChainLayout layout_chain(const Chain& chain, const std::vector<Action>& actions);

}  // namespace reprise
