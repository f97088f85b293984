// Reads the policy of offload.h.
#include "tools/plan/graph/offload.h"

#include <algorithm>
#include <sstream>

#include "lib/assert.h"
#include "tools/files/io/error.h"
#include "tools/files/io/text.h"

namespace reprise {

namespace {

const std::string kOffload = "offload:";

std::string boundary_name(const Graph& graph, const LinkBody& link) {
  return link.input == kNoValue ? "" : graph.values[link.input].name;
}

// Lists boundaries for an error. Boundary 0 is the input, which never leaves memory.
std::string some_boundaries(const Graph& graph, const std::vector<LinkBody>& links) {
  std::vector<std::string> names;
  for (size_t i = 1; i < links.size(); ++i) names.push_back(boundary_name(graph, links[i]));
  return some_of(names);
}

}  // namespace

bool is_offload(const std::string& policy) { return policy.starts_with(kOffload); }

std::vector<int> offloaded_starts(const std::string& policy, const Graph& graph, const std::vector<LinkBody>& links,
                                  const std::string& where) {
  REPRISE_ASSERT(is_offload(policy) && !links.empty(), "the policy offloads, and the chain has links");
  std::vector<bool> is_start(links.size(), false);
  is_start[0] = true;
  std::istringstream patterns(policy.substr(kOffload.size()));
  bool any = false;
  for (std::string pattern; std::getline(patterns, pattern, ',');) {
    bool names_one = false;
    for (size_t i = 1; i < links.size(); ++i) {
      if (!matches_pattern(pattern, boundary_name(graph, links[i]))) continue;
      is_start[i] = names_one = any = true;
    }
    if (!names_one)
      throw UserError(where + ": \"" + pattern +
                      "\" names no boundary between links: " + some_boundaries(graph, links));
  }
  if (!any) throw UserError(where + ": offload: names nothing; name boundaries: " + some_boundaries(graph, links));
  std::vector<int> starts;
  for (size_t i = 0; i < links.size(); ++i) {
    if (is_start[i]) starts.push_back(static_cast<int>(i));
  }
  return starts;
}

}  // namespace reprise
