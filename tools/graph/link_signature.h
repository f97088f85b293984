// When two links are the same but for which values they hold, one solution serves both.
// Here because a deep network has few distinct links.
#pragma once

#include <string>
#include <vector>

#include "tools/graph/link.h"

namespace reprise {

// Values in order of appearance: two links with equal signatures differ only in which values these are.
std::vector<ValueId> appearing_values(const LinkBody& link);

// Kinds, types and shapes of the values, and all calls over them. `order` is appearing_values(link).
std::string signature_of(const Graph& graph, const LinkBody& link, const std::vector<ValueId>& order);

// Copies the solution of a link of equal signature, value by value and attribute by attribute.
void transfer_solution(const LinkBody& from, LinkBody& to, const std::vector<ValueId>& from_values, const std::vector<ValueId>& to_values);

}  // namespace reprise
