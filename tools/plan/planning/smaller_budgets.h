// Up to three budgets below a plan's, and their costs. They are stored with the plan: a board that
// has less memory than the plan needs may have no planner to find them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/plan/planning/planner.h"

namespace reprise {

struct SmallerBudget {
  uint64_t budget_bytes;      // bytes of the plan's arena, all of which the plan needs
  double extra_forward_cost;  // as in PlannedModel
};

// Returns the budgets of three plans: at two thirds and at one third of the way from the smallest
// budget to the plan's, and at the smallest budget. There are fewer if plans need the same bytes,
// and none if the schedule's smallest budget is unknown.
std::vector<SmallerBudget> smaller_budgets(const SolvedModel& model, const PlannedModel& planned);

// Returns text, for example "350.0 MiB (+2.1% work), 272.0 MiB (+10.2%)".
std::string smaller_budgets_text(const std::vector<SmallerBudget>& budgets);
nlohmann::json smaller_budgets_json(const std::vector<SmallerBudget>& budgets);

}  // namespace reprise
