// Finds links that make equal calls on different values of equal shapes, so that one solution
// serves all of them. A deep network has few distinct links.
#pragma once

#include <string>
#include <vector>

#include "tools/plan/graph/link.h"

namespace reprise {

// Returns the link's values in the order in which its calls first use them, after its input, output
// and their gradients. Links of equal signature differ only in these values.
std::vector<ValueId> appearing_values(const LinkBody& link);

// Returns a text of the kinds, types and shapes of the link's values, and of all calls over them.
// `order` is appearing_values(link).
std::string signature_of(const Graph& graph, const LinkBody& link, const std::vector<ValueId>& order);

// Copies the solution of `from` (prices, tapes, residues and arranged calls) to `to`, a link of
// equal signature. from_values[i] becomes to_values[i], and each call keeps the attribute that it
// has in `to`.
void transfer_solution(const LinkBody& from, LinkBody& to, const std::vector<ValueId>& from_values,
                       const std::vector<ValueId>& to_values);

}  // namespace reprise
