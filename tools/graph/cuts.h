// Where a graph is cut into links, found from the graph alone.
// Here because a model says what it is made of, not how it is scheduled, and a graph from elsewhere has no cuts.
#pragma once

#include <vector>

#include "tools/graph/graph.h"
#include "tools/graph/link.h"

namespace reprise {

// A block of more nodes is cut inside.
constexpr size_t kMostBlockNodes = 32;

// A small core has room for a few of a line's values at once, and a link's backward computes all of its own again before it begins: a link of
// its plans takes a convolution, its norm and its function.
constexpr size_t kMostValuesOnSmallCore = 3;

// The boundaries of a graph, in order, by one rule for every family.
//
// A cut is possible behind a node whose main output is then the one value that later nodes read of what was written before, the input
// counted too. What the host fills beside the input (the starts of documents), parameters and tables cross nothing: every link may read
// them. Between two neighbouring possible cuts stands either one node, or a *block*, whose branches nothing can cut.
//
//   x ─┬─ norm ─ attention ─ add ─┬─ norm ─ mlp ─ add ─ norm ─ loss        possible: behind x and each add, behind the last norm
//      └──────────────────── ┘   └──────────── ┘                          taken: all but behind the last norm
//
// 1. Each block begins a link, and the single nodes behind it, up to the next block, belong to it. Those before the first block are a link.
// 2. The last link, the head, begins behind the last block. What is computed there in place of the block's output (a ReLU) stays with it.
// 3. A link takes no further node that would make it hold more than `most_values`, at most kMostCandidates (link.h), so that it is solved by
//    full enumeration: a long line of single nodes is cut into such links. What is computed in place is never cut off, and a block is what it is.
// 4. In a block of more than kMostBlockNodes nodes, a U-Net's between two skips of one level, other values may cross beside the main output: as few
//    as they can be somewhere in the block. What crosses a cut there is held (held.h), so that crossing another one costs nothing more; what is
//    left between such cuts is a node or a block like any other, and is cut again where it is as large.
//
// So a ResNet is cut after its stem and after each unit, a transformer after its embedding and after each half of a block.
std::vector<ValueId> find_cuts(const Graph& graph, size_t most_values = kMostCandidates);

}  // namespace reprise
