// Stores all: records every link with its full tape, then runs backward. No link runs twice. It is
// the reference for time and memory, and does not adapt to the budget.
#include "tools/plan/schedule/strategy.h"

namespace reprise {

Schedule schedule_none(const Chain& chain, const ScheduleRequest& request) {
  return judge_plan(chain, segment_actions(chain, {0}), request.memory_bytes);
}

}  // namespace reprise
