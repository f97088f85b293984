// What plan, audit and rows look at: a recipe, whose plans are made, or a manifest of plans that are made.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "tools/commands/recipe_options.h"

namespace reprise {

// A plan with the model that it is of, whose recipe has the plan's own budget.
struct PlanOfBudget {
  SolvedModel model;
  PlannedModel planned;
};
// The model at each of "budgets", or without any as it is, in their order. State is the same in all: where weights may be streamed, those are that
// the plan of the smallest budget streams.
std::vector<SolvedModel> models_of_budgets(const SolvedModel& model, const std::vector<uint64_t>& budgets);

// Of each of "budgets", or without any the one plan of the model's recipe. Throws UserError of status kDoesNotFit for the first that does not fit.
std::vector<PlanOfBudget> plans_of_budgets(const SolvedModel& model, const std::vector<uint64_t>& budgets);

// The first one's manifest, which has those of the others in "other_budgets".
nlohmann::json manifest_of_plans(const std::vector<PlanOfBudget>& plans);

struct PlanSource {
  nlohmann::json manifest;          // checked
  std::vector<PlanOfBudget> plans;  // of a recipe
};

// Throws UserError, also where the recipe does not fit, and where an option is given that has no effect on a manifest.
PlanSource open_plan(const RecipeOptions& options);

}  // namespace reprise
