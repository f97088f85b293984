// Keeps every k-th boundary and recomputes the links between them, one segment at a time. Most
// frameworks offer this (Megatron-LM's "uniform" method, PyTorch's checkpoint_sequential). With a
// second level all boundaries are kept there, as in DeepSpeed's checkpoint_in_cpu. The strategy
// ignores that links differ in size.
#include <utility>

#include "tools/plan/schedule/strategy.h"

namespace reprise {
namespace {

std::vector<Action> every_k_actions(const Chain& chain, int k, bool spilled) {
  std::vector<int> starts;
  for (int start = 0; start < chain.length(); start += k) starts.push_back(start);
  return segment_actions(chain, starts, spilled);
}

}  // namespace

// Uses the cheapest k that fits if the request gives none. The smallest k that fits may cost more:
// with a larger k the last segment is longer, and its forwards run only once. So with the smallest
// k, more memory could give a slower plan.
Schedule schedule_every_k(const Chain& chain, const ScheduleRequest& request) {
  const bool spilled = request.disk.bytes > 0;
  if (request.k > 0)
    return judge_plan(chain, every_k_actions(chain, request.k, spilled), request.memory_bytes, request.disk);
  Schedule best;
  for (int k = 1; k <= chain.length(); ++k) {
    best = better_plan(std::move(best),
                       judge_plan(chain, every_k_actions(chain, k, spilled), request.memory_bytes, request.disk));
  }
  return best;
}

}  // namespace reprise
