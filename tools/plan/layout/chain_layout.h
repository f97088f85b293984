// Gives every block of a chain schedule an address, with two stacks and one gradient that is placed
// between them (PLANNING 6). The highest end of a block is exactly the schedule's peak.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/plan/schedule/chain.h"

namespace reprise {

// A move of the gradient before the action, with memmove semantics: the two places may overlap.
struct GradientMove {
  uint64_t from = 0;
  uint64_t to = 0;
  uint64_t bytes = 0;
};

// Offsets of the blocks of one link of an advance. `residue` is used only in a residue mode, and is
// equal in every pass over the link.
struct LinkPlacement {
  uint64_t output = 0;   // boundary u+1, boundary_bytes(u+1) long
  uint64_t scratch = 0;  // forward_scratch_bytes long
  uint64_t residue = 0;  // residues[choice].bytes long
};

// Offsets in bytes. Each kind of action sets:
//   kAdvance   links: one for each link first..last-1. The last output is kept; each other output
//              is freed after the link that reads it.
//   kRecord    tape: the block that this action writes, tape_bytes long, with the output (boundary
//              first+1) in front.
//              residue: offset of the link's residue if an earlier advance wrote it
//              (residue_bytes > 0). The residue stays there until the backward. Its values are not
//              in the tape's block, which always contains the output.
//              scratch: tape.forward_scratch_bytes long.
//   kBackward  tape and residue: as in the link's record; new_gradient: boundary_bytes(first) long;
//              scratch: tape.scratch_bytes long.
//   kDrop      nothing.
//   kWrite     disk.
//   kRead      links: one, whose output is boundary `first`; disk: as in the boundary's write.
struct ActionPlacement {
  std::vector<GradientMove> moves;  // at most one, before the action; never of 0 bytes
  // Boundary `first`, which the action reads (advance, record, backward, write) or frees (drop).
  uint64_t input = 0;
  uint64_t gradient = 0;            // the gradient that is live during the action, after its move
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
  uint64_t peak_bytes = 0;  // maximum sum of live bytes; an advance in a residue mode reserves all its residues at once
  uint64_t move_bytes = 0;               // sum over all moves
  uint64_t disk_bytes = 0;               // highest end of a block on disk, and so the maximum bytes on disk at once
};

// Returns the addresses of a schedule's blocks. The input boundary is at 0. Sizes may be any
// integers (alignment 1; for another alignment, round them up before). packed_bytes == peak_bytes
// for every schedule. float_gradient() places the gradient between the two stacks, with as few
// moved bytes as it finds.
//
// These blocks are live at the same time: boundary 0, kept boundaries, tapes, residues, and the
// gradient of boundary l+1, where l is the last link whose backward has not run. While link u of an
// advance runs, boundaries u (if u > first) and u+1 and the link's scratch are live in addition. A
// record needs its scratch in addition, and a backward the new gradient and its scratch. The loss's
// output and its gradient have chain.links.back().boundary_bytes (0) bytes.
//
// Boundaries go on the top stack, with one exception: an advance from a boundary i, which is on
// disk, to a boundary j, where i is dropped before j. Then j goes on the stack that i is not on. So
// every drop pops a stack, and no block must be shifted. The exception is refused over links that
// already have residues, because the residues would be popped below j. No strategy makes such an
// advance. Copies on disk are a stack of their own.
//
// A tape outlives the input of its link if the input is dropped right after the record, and is
// computed again before the backward. Such a tape goes on the bottom stack, because all residues
// above it are popped first. It is refused if its own link has a residue.
//
// Throws std::logic_error for actions that are not a nested recursion: an input that is not the
// latest kept value; a backward out of order; a residue mode other than the kept one; an end before
// link 0's backward. Also throws for a drop of a boundary before the backwards that read it. Such a
// drop is allowed if a copy is on disk, or if the latest block is a tape that outlives the
// boundary.
ChainLayout layout_chain(const Chain& chain, const std::vector<Action>& actions);

}  // namespace reprise
