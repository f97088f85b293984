// Writes the plan of a recipe to a folder: DIR/plan.h or DIR/plan.bin, and DIR/manifest.json. For
// `"backend": "auto"` the files of the card's plan are in DIR/cuda. Either all files are written or
// none.
#pragma once

#include <string>

#include "tools/run/commands/recipe_options.h"

namespace reprise {

// The form of a plan: a header for the compiler, or a plan file for a program that is already
// compiled (plan_file.h).
enum class PlanForm { kHeader, kFile };

// Writes the files, and returns a description of the plan in a few lines. If a file already has the
// right contents, only its time is updated. Throws UserError, with status kDoesNotFit if the recipe
// does not fit its budget.
std::string plan_into(const RecipeOptions& options, const std::string& folder, PlanForm form);

}  // namespace reprise
