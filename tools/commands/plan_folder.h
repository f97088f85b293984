// Planning a recipe into a folder: DIR/plan.h and DIR/manifest.json, and for `"backend": "auto"` DIR/cuda/plan.h and its manifest beside
// them: all or none.
#pragma once

#include <string>

#include "tools/commands/recipe_options.h"

namespace reprise {

// Answers the plan in a few lines, for a person. A file that holds its text already is only touched. Throws UserError, of status
// kDoesNotFit where the recipe does not fit its budget.
std::string plan_into(const RecipeOptions& options, const std::string& folder);

}  // namespace reprise
