// Store all: record every link with its full tape, then run backward. No link runs twice.
// The yardstick for time and for memory.
// It must not know the budget: it either fits or not.
#include "tools/schedule/strategy.h"

namespace reprise {

Schedule schedule_none(const Chain& chain, const ScheduleRequest& request) {
  return judge_plan(chain, segment_actions(chain, {0}), request.memory_bytes);
}

}  // namespace reprise
