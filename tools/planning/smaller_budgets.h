// Three budgets below a plan's, and what they would cost.
// Here because whoever's board has less memory left than a plan takes asks which other plan to make, and the board need not have the planner.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/planning/planner.h"

namespace reprise {

struct SmallerBudget {
  uint64_t budget_bytes;      // of the arena, and what its plan takes
  double extra_forward_cost;  // PlannedModel's
};

// At two and at one third of the way from the smallest budget to the plan's, and the smallest, in this order; fewer where plans take the same, and none
// where the recipe's schedule knows none.
std::vector<SmallerBudget> smaller_budgets(const SolvedModel& model, const PlannedModel& planned);

// "350.0 MiB (+2.1% work), 272.0 MiB (+10.2%)".
std::string smaller_budgets_text(const std::vector<SmallerBudget>& budgets);
nlohmann::json smaller_budgets_json(const std::vector<SmallerBudget>& budgets);

}  // namespace reprise
