// See does_not_fit.h.
#include "tools/planning/does_not_fit.h"

#include <sstream>

#include "tools/formats/text.h"
#include "tools/planning/peak.h"
#include "tools/planning/weight_storage.h"

namespace reprise {

namespace {

// Whether updating each weight right after its gradient's last write would do with less. It is the recipe's word, not the planner's
// choice: a gradient that is not finite is then seen too late to spare the weights.
std::string release_advice(const SolvedModel& model, const ScheduleRequest& request, uint64_t smallest_budget_bytes) {
  Recipe recipe = model.recipe;
  if (recipe.gradient_release || recipe.clip_norm || recipe.accumulate > 1 || recipe.parallel || recipe.feature_map_budget_bytes) return "";
  recipe.gradient_release = true;
  const uint64_t bytes = smallest_budget(solve_network(recipe, model.network), request);
  return bytes == 0 || bytes >= smallest_budget_bytes ? "" : "; with \"gradient_release\": true it would be " + bytes_text(bytes);
}

}  // namespace

std::string does_not_fit_message(const SolvedModel& model, const PlannedModel& planned, const ScheduleRequest& request) {
  std::ostringstream text;
  const Recipe& recipe = model.recipe;
  text << recipe.name << ": " << (recipe.budget_bytes ? "budget" : "feature_map_budget") << " "
       << bytes_text(recipe.budget_bytes ? *recipe.budget_bytes : *recipe.feature_map_budget_bytes) << " does not fit schedule \""
       << request.strategy << "\"";
  if (planned.smallest_budget_bytes == 0) return text.str();
  SolvedModel with_enough = model;
  (recipe.budget_bytes ? with_enough.recipe.budget_bytes : with_enough.recipe.feature_map_budget_bytes) = planned.smallest_budget_bytes;
  text << "; the smallest budget that does is " << planned.smallest_budget_bytes << " bytes (" << bytes_text(planned.smallest_budget_bytes)
       << ")";
  const PlannedModel least = plan_model(with_enough, request);
  if (!least.fits) return text.str();
  const OwnedProgram& program = least.plan.programs[0];
  const PeakRow peak = find_peak(program);
  text << ": " << bytes_text(model.state_bytes) << " state, " << bytes_text(model.carried_bytes) << " gradients, and at its peak (row "
       << peak.row << ", " << least.plan.link_names[program.rows[peak.row].link] << ") these live:";
  for (size_t i = 0; i < peak.slots.size() && i < 8; ++i) {
    text << (i == 0 ? " " : ", ") << program.slot_names[peak.slots[i]] << " " << bytes_text(program.slots[peak.slots[i]].tensor.bytes);
  }
  if (peak.slots.size() > 8) text << ", and " << peak.slots.size() - 8 << " smaller ones";
  text << release_advice(model, request, planned.smallest_budget_bytes);
  if (const WidenedWeights widened = widened_weights(recipe, model.network); widened.tensors > 0) text << "; " << widened_text(widened);
  return text.str();
}

}  // namespace reprise
