// Folds batch-norm, ReLU and addition into the calls that read their outputs, which are then never
// stored. Folds the statistics of a batch-norm into the call that writes its input. If the only
// reader of a value can compute it while reading, storing the value would waste memory and two
// passes over it. A fold rewrites calls; nodes, rules and evaluation do not change.
#pragma once

#include "tools/plan/graph/link.h"

namespace reprise {

// Marks each convolution whose output is read by a batch-norm with batch statistics. The mark is
// the norm's epsilon in the convolution's attribute; with it the convolution can compute the norm's
// statistics. A convolution is not marked if the graph is cut between the convolution and the norm.
// If several such norms read the output, the mark is for the first of them. Must be called before
// calls are made from the nodes.
void want_statistics(Graph& graph);

// Rewrites the forward and backward calls of a part of the graph by the following patterns. A value
// that crosses a cut is never folded.
//   convolution(relu(batch_norm(x)))  the convolutions normalise x themselves, forward and for the
//                                     gradients of their weights; every reader of the ReLU must
//                                     be a convolution with one group of channels
//   batch_norm(convolution(x))        the convolution computes the statistics it is marked for
//   relu(add(batch_norm(x), b))       one kernel; batch_norm and add must have no other reader
// An op is folded if kFoldedReaders or kStatisticsWriters (fold.cpp) has an entry for it.
void fold_norms(const Graph& graph, std::vector<Call>& forward, std::vector<Call>& backward);

// Calls want_statistics() and cut_into_links(), folds the calls of each link with fold_norms(), and
// returns the links.
ChainBodies cut_into_folded_links(Graph& graph);

}  // namespace reprise
