// The source of plan_source.h.
#include "tools/commands/plan_source.h"

#include <algorithm>

#include "tools/audit/manifest.h"
#include "tools/formats/error.h"
#include "tools/formats/output_file.h"
#include "tools/planning/does_not_fit.h"

namespace reprise {

std::vector<PlanOfBudget> plans_of_budgets(const SolvedModel& model, const std::vector<uint64_t>& budgets) {
  std::vector<PlanOfBudget> plans(std::max<size_t>(1, budgets.size()), {model, {}});
  for (size_t i = 0; i < plans.size(); ++i) {
    if (!budgets.empty()) plans[i].model.recipe.budget_bytes = budgets[i];
    const ScheduleRequest request = request_of(plans[i].model);
    plans[i].planned = plan_model(plans[i].model, request);
    if (!plans[i].planned.fits) throw UserError(does_not_fit_message(plans[i].model, plans[i].planned, request), UserError::kDoesNotFit);
  }
  return plans;
}

nlohmann::json manifest_of_plans(const std::vector<PlanOfBudget>& plans) {
  nlohmann::json manifest = manifest_of(plans[0].model, plans[0].planned);
  for (size_t i = 1; i < plans.size(); ++i) manifest["other_budgets"].push_back(manifest_of(plans[i].model, plans[i].planned));
  return manifest;
}

PlanSource open_plan(const RecipeOptions& options) {
  PlanSource source;
  if (is_manifest(nlohmann::json::parse(read_file(options.recipe), nullptr, false))) {
    const std::string unheeded = options.first_given();
    if (!unheeded.empty()) {
      throw UserError(options.recipe + ": " + unheeded + ": has no effect on a manifest, which is of a plan that is made; give the recipe", UserError::kUsage);
    }
    source.manifest = read_manifest(options.recipe);
    return source;
  }
  source.plans = plans_of_budgets(options.solve(), options.read().budgets);
  source.manifest = manifest_of_plans(source.plans);
  return source;
}

}  // namespace reprise
