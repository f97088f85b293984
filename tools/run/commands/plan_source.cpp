// See plan_source.h.
#include "tools/run/commands/plan_source.h"

#include <algorithm>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/output_file.h"
#include "tools/plan/audit/manifest.h"
#include "tools/plan/planning/does_not_fit.h"
#include "tools/plan/planning/proposals.h"
#include "tools/plan/planning/weight_stream.h"

namespace reprise {

std::vector<SolvedModel> models_of_budgets(const SolvedModel& model, const std::vector<uint64_t>& budgets) {
  if (budgets.empty()) return {model};
  SolvedModel settled = model;
  if (!model.window.streamed.empty()) {
    settled.recipe.budget_bytes = *std::min_element(budgets.begin(), budgets.end());
    if (const PlannedModel smallest = plan_model(settled, request_of(settled)); smallest.fits)
      settle_streams(settled, smallest.plan);
  }
  std::vector<SolvedModel> each(budgets.size(), settled);
  for (size_t i = 0; i < budgets.size(); ++i) each[i].recipe.budget_bytes = budgets[i];
  return each;
}

std::vector<PlanOfBudget> plans_of_budgets(const SolvedModel& model, const std::vector<uint64_t>& budgets) {
  std::vector<PlanOfBudget> plans;
  for (SolvedModel& each : models_of_budgets(model, budgets)) {
    const ScheduleRequest request = request_of(each);
    PlannedModel planned = plan_model(each, request);
    if (!planned.fits) {
      const std::vector<Proposal> proposals = proposals_for(each, planned.smallest_budget_bytes, fits_own_budget);
      throw UserError(does_not_fit_message(each, planned, request) + proposals_text(proposals), UserError::kDoesNotFit);
    }
    plans.push_back({std::move(each), std::move(planned)});
  }
  return plans;
}

nlohmann::json manifest_of_plans(const std::vector<PlanOfBudget>& plans) {
  nlohmann::json manifest = manifest_of(plans[0].model, plans[0].planned);
  for (size_t i = 1; i < plans.size(); ++i)
    manifest["other_budgets"].push_back(manifest_of(plans[i].model, plans[i].planned));
  return manifest;
}

PlanSource open_plan(const RecipeOptions& options) {
  PlanSource source;
  if (is_manifest(json_or_discarded(read_file(options.recipe)))) {
    const std::string unheeded = options.first_given();
    if (!unheeded.empty()) {
      throw UserError(options.recipe + ": " + unheeded +
                          ": has no effect on a manifest, which is of a plan that is made; give the recipe",
                      UserError::kUsage);
    }
    source.manifest = read_manifest(options.recipe);
    return source;
  }
  source.plans = plans_of_budgets(options.solve(), options.read().budgets);
  source.manifest = manifest_of_plans(source.plans);
  return source;
}

}  // namespace reprise
