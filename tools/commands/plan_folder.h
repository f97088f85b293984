// Planning a recipe into a folder: DIR/plan.h or DIR/plan.bin, and DIR/manifest.json, and for `"backend": "auto"` the card's in DIR/cuda
// beside them: all or none.
#pragma once

#include <string>

#include "tools/commands/recipe_options.h"

namespace reprise {

// For the compiler, or for a program that it has compiled already (plan_file.h).
enum class PlanForm { kHeader, kFile };

// Answers the plan in a few lines, for a person. A file that holds its text already is only touched. Throws UserError, of status
// kDoesNotFit where the recipe does not fit its budget.
std::string plan_into(const RecipeOptions& options, const std::string& folder, PlanForm form);

}  // namespace reprise
