// Keep every k-th boundary and recompute the links between, one segment at a time.
// It is what most frameworks offer (Megatron-LM's "uniform" method, PyTorch's checkpoint_sequential).
// It must not know that links differ in size: that is its weakness.
#include "tools/schedule/strategy.h"

namespace reprise {
namespace {

std::vector<Action> every_k_actions(const Chain& chain, int k) {
  std::vector<int> starts;
  for (int start = 0; start < chain.length(); start += k) starts.push_back(start);
  return segment_actions(chain, starts);
}

}  // namespace

// Without a k the smallest one that fits: more boundaries are kept, but the last segment's tapes are the fewest.
Schedule schedule_every_k(const Chain& chain, const ScheduleRequest& request) {
  if (request.k > 0) return judge_plan(chain, every_k_actions(chain, request.k), request.memory_bytes);
  Schedule best;
  for (int k = 1; k <= chain.length(); ++k) {
    const Schedule plan = judge_plan(chain, every_k_actions(chain, k), request.memory_bytes);
    best = k == 1 ? plan : better_plan(best, plan);
    if (best.feasible) return best;
  }
  return best;
}

}  // namespace reprise
