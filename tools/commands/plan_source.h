// What audit and rows look at: a recipe, which is planned, or a manifest of a plan that is made.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "tools/commands/recipe_options.h"

namespace reprise {

struct PlanSource {
  nlohmann::json manifest;           // checked
  std::optional<SolvedModel> model;  // of a recipe
  std::optional<PlannedModel> planned;
};

// Throws UserError, also where the recipe does not fit, and where an option is given that has no effect on a manifest.
PlanSource open_plan(const RecipeOptions& options);

}  // namespace reprise
