// Batch-norm, ReLU and addition folded into what reads them: their outputs are never stored. Statistics folded into what writes.
// Here because a value that its one reader can compute while it reads costs memory and two passes over it for nothing.
#pragma once

#include "tools/graph/graph.h"

namespace reprise {

// Sets Node::fold, Node::source and Node::statistics, where the model does not cut the graph between them:
//   convolution(relu(batch_norm(x)))       the convolutions normalise x themselves, forward and for their weights' gradients; every
//                                          reader of the ReLU must be one
//   batch_norm(convolution(x))             the convolution takes batch-norm's statistics of what it writes
//   relu(add(batch_norm(x), b))            one kernel; batch_norm and add must have no other reader
void fold_norms(Graph& graph);

}  // namespace reprise
