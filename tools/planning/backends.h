// The backends that a recipe may name, by their rules: all that tools see of a backend.
#pragma once

#include <string>

#include "lib/backend_rules.h"
#include "tools/recipes/recipe.h"

namespace reprise {

// The rules that a recipe is planned with; "auto" is planned for the CPU.
const BackendRules& backend_of(const Recipe& recipe);

}  // namespace reprise
