// A plan in a few lines, for a person.
// Here because `plan` and `fit` print them, plan.h carries them and the compiled program shows them.
#pragma once

#include "tools/planning/planner.h"

namespace reprise {

// Budget, planned peak, what storing everything would need, extra forward work; how many links are truncated, where some are.
std::string summary_of(const SolvedModel& model, const PlannedModel& planned);

}  // namespace reprise
