// What a person is told whose budget is too small.
// Here so that plan, fit and audit say it in the same words.
#pragma once

#include <string>

#include "tools/planning/planner.h"

namespace reprise {

// One line: what is needed, what was given, what is live at the peak of the smallest plan.
std::string does_not_fit_message(const SolvedModel& model, const PlannedModel& planned, const ScheduleRequest& request);

}  // namespace reprise
