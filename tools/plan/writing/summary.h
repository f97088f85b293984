// Summarises a plan in a few lines of text: `plan` and `fit` print them, plan.h contains them and
// the compiled program shows them.
#pragma once

#include "tools/plan/planning/planner.h"

namespace reprise {

// Returns text with the budget, the planned peak, the bytes that storing everything would take, the
// extra forward work and more. It includes the number of truncated links if there are any.
std::string summary_of(const SolvedModel& model, const PlannedModel& planned);

}  // namespace reprise
