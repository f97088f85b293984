// Writes the message for a budget that is too small; plan, fit and audit print the same message.
// proposals.h lists changes that help.
#pragma once

#include <string>

#include "tools/plan/planning/planner.h"

namespace reprise {

// Returns one line: what is needed, what was given, and what is live at the peak of the smallest
// plan.
std::string does_not_fit_message(const SolvedModel& model, const PlannedModel& planned, const ScheduleRequest& request);

}  // namespace reprise
