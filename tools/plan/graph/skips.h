// Skips: values that cross a cut in addition to its boundary, such as a U-Net's skips. A schedule
// chooses among boundaries alone, so these values need memory outside of it (PLANNING 4.7).
//
// A *skip* is computed once, in the first forward of the link that writes it. It is kept until the
// last backward that reads it, however many boundaries are between. Its gradient is kept from the
// first backward that adds to it. Both are stored in the header of the program's region:
// pack_skips() returns their offsets in a block, and region_header() (tools/plan/lowering/lower.h)
// places that block. A boundary that is also a skip takes no bytes of the chain.
//
// The link that writes a skip reads it too, and its backward is the last of all. So copy_skips()
// makes a copy for the other links: the copy is the skip, and the link may compute its own value
// again. In a U-Net the copy ends where the skip's gradient begins, and both have the same bytes.
//
//   x ── a ──┬── b ── c ── d ──┬── e     cuts after a, b, c and d: a is a skip, and is the first
//            └─────────────────┘         link's boundary; a schedule chooses among b, c and d
#pragma once

#include <map>
#include <vector>

#include "tools/plan/graph/link.h"

namespace reprise {

// Marks values as kSkip: each value that a link reads, but neither computes nor has as its input,
// and the other outputs of the node that writes that value.
void mark_skips(Graph& graph, const std::vector<LinkBody>& links);

// Gives other links a copy of each skip, unless the next link reads it. The copy is then the skip,
// and ends with the backward of the first link that reads it. The value itself becomes an
// activation of the link that writes it. Boundaries are not copied.
void copy_skips(Graph& graph, std::vector<LinkBody>& links);

// Marks the calls that only the link's first forward runs (Call::once): the calls that write a
// skip, and the calls whose results only such calls read.
void run_skips_once(const Graph& graph, LinkBody& link);

// True if in these calls of a backward all reads of skips precede the first write of each gradient
// of a skip that begins here.
bool reads_skips_first(const Graph& graph, const std::vector<Call>& backward);

// A block of memory with all skips and their gradients: the offset of each value in the block, and
// the bytes of the block. Values that are not needed at the same time share bytes. `links` should
// be solved: their tapes tell whether a backward reads a skip before it writes the gradient.
struct SkipBlock {
  std::map<ValueId, uint64_t> offsets;
  uint64_t bytes = 0;
};
SkipBlock pack_skips(const Graph& graph, const std::vector<LinkBody>& links);

// Returns the bytes of a boundary as the chain counts them: 0 for the loss, and 0 if it is a skip.
uint64_t boundary_bytes(const Graph& graph, ValueId boundary);

// True if the value is kSmall, a skip or a skip's gradient. Such values are stored in the header of
// the program's region, outside the schedule.
bool lives_in_header(const Value& value);

}  // namespace reprise
