// Values that cross a cut beside its boundary, such as a U-Net's skips.
// Here because a schedule chooses among boundaries alone, and what crosses beside them must lie somewhere (PLANNING 4.7).
//
// Such a value is *held*: computed once, in the first forward of the link that writes it, and kept until the backward of that link, however many
// boundaries lie between. Its gradient is held from the first backward that adds to it. Both lie in the header of the program's region. A boundary
// that is held too takes no bytes of the chain.
//
//   x ── a ──┬── b ── c ── d ──┬── e        cut behind a, b, c and d: a is held, and the boundary of the first link; a schedule chooses among
//            └─────────────────┘            b, c and d
#pragma once

#include <map>
#include <vector>

#include "tools/graph/link.h"

namespace reprise {

// Makes kHeld what a link reads that is neither its own nor its input, and all that the same node writes.
void mark_held(Graph& graph, const std::vector<LinkBody>& links);

// What writes a held value runs in the first forward alone, and so does what is computed for nothing else.
void run_held_once(const Graph& graph, LinkBody& link);

// Where held values and their gradients lie from the block's beginning: those that are never there together share their bytes.
struct HeldBlock {
  std::map<ValueId, uint64_t> offsets;
  uint64_t bytes = 0;
};
HeldBlock pack_held(const Graph& graph, const std::vector<LinkBody>& links);

// Of a boundary as the chain counts it: none for the loss, and none where it is held.
uint64_t boundary_bytes(const Graph& graph, ValueId boundary);

// What is small or held: it lies in the header of the program's region, where no schedule chooses.
bool lives_in_header(const Value& value);

}  // namespace reprise
