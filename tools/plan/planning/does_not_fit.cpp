// Writes the message of does_not_fit.h.
#include "tools/plan/planning/does_not_fit.h"

#include <sstream>

#include "tools/files/io/text.h"
#include "tools/plan/planning/peak.h"
#include "tools/plan/planning/weight_storage.h"

namespace reprise {

std::string does_not_fit_message(const SolvedModel& model, const PlannedModel& planned,
                                 const ScheduleRequest& request) {
  std::ostringstream text;
  const Recipe& recipe = model.recipe;
  text << recipe.name << ": " << (recipe.budget_bytes ? "budget" : "feature_map_budget") << " "
       << bytes_text(recipe.budget_bytes ? *recipe.budget_bytes : *recipe.feature_map_budget_bytes)
       << " does not fit schedule \"" << request.strategy << "\"";
  if (planned.smallest_budget_bytes == 0) return text.str();
  SolvedModel with_enough = model;
  (recipe.budget_bytes ? with_enough.recipe.budget_bytes : with_enough.recipe.feature_map_budget_bytes) =
      planned.smallest_budget_bytes;
  text << "; the smallest budget that does is " << planned.smallest_budget_bytes << " bytes ("
       << bytes_text(planned.smallest_budget_bytes) << ")";
  const PlannedModel minimum = plan_model(with_enough, request);
  if (!minimum.fits) return text.str();
  const OwnedProgram& program = minimum.plan.programs[0];
  const PeakRow peak = find_peak(program);
  text << ": " << bytes_text(model.state_bytes) << " state, " << bytes_text(model.carried_bytes)
       << " gradients, and at its peak (row " << peak.row << ", "
       << minimum.plan.link_names[program.rows[peak.row].link] << ") these live:";
  for (size_t i = 0; i < peak.slots.size() && i < 8; ++i) {
    text << (i == 0 ? " " : ", ") << program.slot_names[peak.slots[i]] << " "
         << bytes_text(program.slots[peak.slots[i]].tensor.bytes);
  }
  if (peak.slots.size() > 8) text << ", and " << peak.slots.size() - 8 << " smaller ones";
  if (const WidenedWeights widened = widened_weights(recipe, model.network); widened.tensors > 0)
    text << "; " << widened_text(widened);
  return text.str();
}

}  // namespace reprise
