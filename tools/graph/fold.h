// Batch-norm, ReLU and addition folded into what reads them: their outputs are never stored. Statistics folded into what writes.
// Here because a value that its one reader can compute while it reads costs memory and two passes over it for nothing.
// A fold rewrites calls: nodes, rules and evaluation know nothing of it.
#pragma once

#include "tools/graph/link.h"

namespace reprise {

// A convolution whose output a batch-norm reads will take the norm's statistics: its attribute gets the norm's epsilon. Not where the graph is
// cut between them, and of several norms the first. Before calls are made.
void want_statistics(Graph& graph);

// Rewrites the calls of a piece of the graph, where the graph is not cut between them:
//   convolution(relu(batch_norm(x)))       the convolutions normalise x themselves, forward and for their weights' gradients; every
//                                          reader of the ReLU must be one, and of one group of channels
//   batch_norm(convolution(x))             the convolution takes the statistics that it was marked for
//   relu(add(batch_norm(x), b))            one kernel; batch_norm and add must have no other reader
// An op folds where kFoldedReaders or kStatisticsWriters (fold.cpp) has a line for it.
void fold_norms(const Graph& graph, std::vector<Call>& forward, std::vector<Call>& backward);

// cut_into_links() of the graph with its folds.
ChainBodies cut_into_folded_links(Graph& graph);

}  // namespace reprise
