// Makes about sqrt(n) segments of equal length, each recomputed once: O(sqrt(n)) memory for one
// extra forward.
// Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", section 4.1.
// The strategy ignores that links differ in size; `chen` uses their sizes.
#include <cmath>

#include "tools/plan/schedule/strategy.h"

namespace reprise {

Schedule schedule_sqrt(const Chain& chain, const ScheduleRequest& request) {
  const int length = chain.length();
  int segments = request.k > 0 ? request.k : static_cast<int>(std::ceil(std::sqrt(static_cast<double>(length))));
  if (segments > length) segments = length;
  std::vector<int> starts;
  for (int s = 0; s < segments; ++s) {
    starts.push_back(static_cast<int>(static_cast<int64_t>(s) * length / segments));
  }
  return judge_plan(chain, segment_actions(chain, starts, request.disk.bytes > 0), request.memory_bytes, request.disk);
}

}  // namespace reprise
