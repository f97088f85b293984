// Finds where a graph is cut into links, from the graph alone. A model states its nodes, not how
// they are scheduled, and an imported graph has no cuts.
#pragma once

#include <vector>

#include "tools/plan/graph/graph.h"
#include "tools/plan/graph/link.h"

namespace reprise {

// Maximum number of nodes of a block (see find_cuts()) that is not cut inside.
constexpr size_t kMaxBlockNodes = 32;

// Maximum number of values of a link in plans for small cores (microcontrollers). It allows the
// outputs of a convolution, its norm and its activation function. A link's backward first
// recomputes the values of the link, and a small core has memory for only a few values.
constexpr size_t kMaxValuesOnSmallCore = 3;

// Returns the boundaries of a graph, in order, by one rule for every family of models.
//
// A cut is possible after a node if later nodes read only one earlier value, the node's main
// output. The graph's input counts as an earlier value. Parameters, tables and other tensors that
// the host fills (the starts of documents) do not count, because every link may read them. Between
// two neighbouring possible cuts is either one node or a *block* of branches, inside which no cut
// is possible.
//
//   x ─┬─ norm ─ attention ─ add ─┬─ norm ─ mlp ─ add ─ norm ─ loss
//      └──────────────────── ┘   └──────────── ┘
//   possible: after x, after each add, after the last norm; taken: all of these except the last one
//
// 1. Each block begins a link, which includes the single nodes after it, up to the next block. The
//    nodes before the first block are a link of their own.
// 2. The last link, the head, begins after the last block. A node there that may overwrite the
//    block's output (a ReLU) stays with the block.
// 3. A single node that would give a link more than `max_values` values begins the next link. So a
//    long sequence of single nodes becomes several links. With at most kMaxCandidates (link.h)
//    values, every set of values of a link can be tried. A node that works in place stays with the
//    node before it, and so does one after which the node's output is read again (a skip's first
//    reader, see copy_skips() in skips.h). A block is not divided.
// 4. A block of more than kMaxBlockNodes nodes, for example inside a skip connection of a U-Net, is
//    cut where the fewest values cross in addition to the main output. These other values become
//    skips (skips.h). A skip that crosses several cuts costs no more than one that crosses one cut.
//    The parts between these cuts are nodes or blocks as before. Parts that are still too large are
//    cut again.
//
// So a ResNet is cut after its stem and after each unit, a transformer after its embedding and
// after each half block.
std::vector<ValueId> find_cuts(const Graph& graph, size_t max_values = kMaxCandidates);

}  // namespace reprise
