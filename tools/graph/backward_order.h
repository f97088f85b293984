// The orders in which a link's backward may run without changing a bit: each dW before its dX, or right after it.
// Here because the order decides how long inputs and weight gradients live, so how much scratch a backward takes (DESIGN 1, rows).
#pragma once

#include <vector>

#include "tools/graph/graph.h"

namespace reprise {

// The given order first. Every combination; layers past the fourth go as the fourth does.
std::vector<std::vector<Call>> backward_orders(const std::vector<Call>& backward);

}  // namespace reprise
