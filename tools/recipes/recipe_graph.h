// The graph that a recipe trains.
// Here because what is frozen and what decays is a matter of the recipe, not of a family of models. How weights are stored is decided in
// tools/planning/weight_storage.h.
#pragma once

#include "tools/graph/graph.h"
#include "tools/recipes/recipe.h"

namespace reprise {

// The graph of the recipe's model for one micro-batch, with its loss, its cuts, and frozen and undecayed parameters marked. All parameters
// are f32. Throws UserError for a pattern that matches no parameter, in the words of the rules.
Graph build_model(const Recipe& recipe, const RecipeRules& rules);
Graph build_model(const Recipe& recipe, const RecipeRules& rules, MicroBatch batch);  // for another micro-batch than the recipe's
inline Graph build_model(const Recipe& recipe) { return build_model(recipe, {recipe.name}); }

// Refuses patterns of freeze, no_decay and init.skip that match nothing: what a recipe says of names that only the graph knows.
void check_names(const Recipe& recipe, const RecipeRules& rules);
// Refuses an init.from that is no file of weights.
void check_initial_weights(const Recipe& recipe, const RecipeRules& rules);

}  // namespace reprise
