// The input of the commands plan, audit and rows: a recipe, which is planned, or the manifest of
// existing plans.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "tools/run/commands/recipe_options.h"

namespace reprise {

// A plan and the model for which it was made. The model's recipe has the budget of this plan.
struct PlanOfBudget {
  SolvedModel model;
  PlannedModel planned;
};
// Returns the model with each of "budgets", in their order; without budgets, the model itself. All
// have the same State: if weights may be streamed, all of them stream the weights that the plan of
// the smallest budget streams.
std::vector<SolvedModel> models_of_budgets(const SolvedModel& model, const std::vector<uint64_t>& budgets);

// Returns a plan for each of "budgets"; without budgets, one plan for the model's recipe. Throws
// UserError with status kDoesNotFit for the first budget that does not fit.
std::vector<PlanOfBudget> plans_of_budgets(const SolvedModel& model, const std::vector<uint64_t>& budgets);

// Returns the manifest of the first plan, with the manifests of the other plans in "other_budgets".
nlohmann::json manifest_of_plans(const std::vector<PlanOfBudget>& plans);

// A manifest, and the plans from which it was made.
struct PlanSource {
  nlohmann::json manifest;          // a manifest that has passed check_manifest()
  std::vector<PlanOfBudget> plans;  // the plans of the recipe; empty if the input was a manifest
};

// Opens a recipe or a manifest. Throws UserError, also if the recipe does not fit, or if an option
// is given that has no effect on a manifest.
PlanSource open_plan(const RecipeOptions& options);

}  // namespace reprise
