// Plans the budgets of smaller_budgets.h.
#include "tools/plan/planning/smaller_budgets.h"

#include <cstdio>

#include "tools/files/io/text.h"

namespace reprise {

std::vector<SmallerBudget> smaller_budgets(const SolvedModel& model, const PlannedModel& planned) {
  SolvedModel smaller = model;
  smaller.recipe.feature_map_budget_bytes = std::nullopt;
  smaller.recipe.budget_bytes = planned.plan.arena_bytes;
  const uint64_t minimum = smallest_budget(smaller, request_of(smaller));
  std::vector<SmallerBudget> budgets;
  uint64_t before = planned.plan.arena_bytes;
  for (const uint64_t thirds : {2, 1, 0}) {
    if (minimum == 0 || minimum >= before) break;
    smaller.recipe.budget_bytes = minimum + (planned.plan.arena_bytes - minimum) * thirds / 3;
    const PlannedModel next = plan_model(smaller, request_of(smaller));
    if (!next.fits || next.plan.arena_bytes >= before) continue;
    before = next.plan.arena_bytes;
    budgets.push_back({before, next.extra_forward_cost});
  }
  return budgets;
}

std::string smaller_budgets_text(const std::vector<SmallerBudget>& budgets) {
  std::string text;
  for (const SmallerBudget& each : budgets) {
    char share[48];
    std::snprintf(share, sizeof share, text.empty() ? " (+%.1f%% work)" : " (+%.1f%%)", 100 * each.extra_forward_cost);
    text += (text.empty() ? "" : ", ") + bytes_text(each.budget_bytes) + share;
  }
  return text;
}

nlohmann::json smaller_budgets_json(const std::vector<SmallerBudget>& budgets) {
  nlohmann::json list = nlohmann::json::array();
  for (const SmallerBudget& each : budgets)
    list.push_back({{"budget", each.budget_bytes}, {"extra_forward_cost", each.extra_forward_cost}});
  return list;
}

}  // namespace reprise
