// The policy "offload:NAMES": boundaries that wait in the second level of memory, whatever that costs.
// Here because a policy speaks of names, which schedules over chains do not know. Others know it as save_and_offload_only_these_names (JAX), and
// with every boundary as checkpoint_in_cpu (DeepSpeed).
#pragma once

#include <string>
#include <vector>

#include "tools/graph/link.h"

namespace reprise {

bool is_offload(const std::string& policy);

// The links whose inputs the patterns name (* and ? as in freeze), and link 0 in front of them. What lies between two of them is computed again.
// Throws UserError, with `where` before it, where a pattern names no boundary.
std::vector<int> offloaded_starts(const std::string& policy, const Graph& graph, const std::vector<LinkBody>& links, const std::string& where);

}  // namespace reprise
