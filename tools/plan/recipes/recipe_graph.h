// Builds the graph that a recipe trains. The recipe, not the family of models, decides which
// parameters are frozen and which decay. tools/plan/planning/weight_storage.h decides how weights
// are stored.
#pragma once

#include "tools/plan/graph/graph.h"
#include "tools/plan/recipes/recipe.h"

namespace reprise {

// Returns the graph of the recipe's model for one micro-batch, with its loss and its cuts.
// Parameters are marked as frozen or undecayed, and all are f32. Throws UserError, worded by
// `rules`, for a pattern that matches no parameter.
Graph build_model(const Recipe& recipe, const RecipeRules& rules);
// Returns the graph for a micro-batch of another size than the recipe's.
Graph build_model(const Recipe& recipe, const RecipeRules& rules, MicroBatch batch);
inline Graph build_model(const Recipe& recipe) { return build_model(recipe, {recipe.name}); }

// Returns how files store the parameters of an imported net; empty for a family, whose parameters
// have their usual form.
StoredForms stored_forms(const Recipe& recipe);

// Refuses patterns of freeze, no_decay and init.skip that match nothing. Builds the graph, because
// only the graph has the names.
void check_names(const Recipe& recipe, const RecipeRules& rules);
// Refuses an init.from that is no file of weights.
void check_initial_weights(const Recipe& recipe, const RecipeRules& rules);

}  // namespace reprise
