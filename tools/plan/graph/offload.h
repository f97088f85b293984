// The policy "offload:NAMES": it keeps the named boundaries in the second level of memory,
// regardless of the cost. It is separate because it uses names, and schedules over chains have
// none. JAX calls it save_and_offload_only_these_names; with every boundary it is DeepSpeed's
// checkpoint_in_cpu.
#pragma once

#include <string>
#include <vector>

#include "tools/plan/graph/link.h"

namespace reprise {

bool is_offload(const std::string& policy);

// Returns the indices of link 0 and of each link whose input boundary is named by a pattern (* and
// ? as in freeze). Boundaries between two of these links are recomputed. Throws UserError, prefixed
// with `where`, if a pattern names no boundary.
std::vector<int> offloaded_starts(const std::string& policy, const Graph& graph, const std::vector<LinkBody>& links,
                                  const std::string& where);

}  // namespace reprise
