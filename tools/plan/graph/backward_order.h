// Lists the orders in which a link's backward may run. A layer's weight gradient (dW) is computed
// before its input gradient (dX) or directly after it; the results have the same bits. The order
// decides how long inputs and weight gradients live, and so how many bytes of scratch a backward
// needs (DESIGN 1).
#pragma once

#include <vector>

#include "tools/plan/graph/graph.h"

namespace reprise {

// Returns one list of calls for each combination of orders; the first is `backward` itself. Layers
// after the fourth have the order of the fourth, so there are at most 16 lists.
std::vector<std::vector<Call>> backward_orders(const std::vector<Call>& backward);

}  // namespace reprise
