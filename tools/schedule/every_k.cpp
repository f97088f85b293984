// Keep every k-th boundary and recompute the links between, one segment at a time.
// It is what most frameworks offer (Megatron-LM's "uniform" method, PyTorch's checkpoint_sequential); with a second level
// all of them wait there, as DeepSpeed's checkpoint_in_cpu has it.
// It must not know that links differ in size: that is its weakness.
#include <utility>

#include "tools/schedule/strategy.h"

namespace reprise {
namespace {

std::vector<Action> every_k_actions(const Chain& chain, int k, bool spilled) {
  std::vector<int> starts;
  for (int start = 0; start < chain.length(); start += k) starts.push_back(start);
  return segment_actions(chain, starts, spilled);
}

}  // namespace

// Without a k the cheapest of all that fit. The smallest that fits will not do: a longer segment may cost less, as its forwards up to
// the last segment run once, and more memory would then give a slower plan.
Schedule schedule_every_k(const Chain& chain, const ScheduleRequest& request) {
  const bool spilled = request.disk.bytes > 0;
  if (request.k > 0) return judge_plan(chain, every_k_actions(chain, request.k, spilled), request.memory_bytes, request.disk);
  Schedule best;
  for (int k = 1; k <= chain.length(); ++k) {
    best = better_plan(std::move(best), judge_plan(chain, every_k_actions(chain, k, spilled), request.memory_bytes, request.disk));
  }
  return best;
}

}  // namespace reprise
