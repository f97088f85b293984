// The graph that a recipe trains.
// Here because what is frozen, what decays and how frozen weights are stored is a matter of the recipe, not of a family of models.
#pragma once

#include "tools/graph/graph.h"
#include "tools/recipes/recipe.h"

namespace reprise {

// The graph of the recipe's model for one micro-batch, with its loss, its cuts, and frozen and undecayed parameters marked. A frozen
// matrix that published_weights() stores as BF16 is bf16 here too; every other parameter is f32. Throws UserError for a pattern that
// matches no parameter, in the words of the rules.
Graph build_model(const Recipe& recipe, const RecipeRules& rules);
Graph build_model(const Recipe& recipe, const RecipeRules& rules, MicroBatch batch);  // for another micro-batch than the recipe's
inline Graph build_model(const Recipe& recipe) { return build_model(recipe, {recipe.name}); }

// Frozen matrices that the model's own files store in fewer bytes than they take in memory, because they become f32 there; in a folder that
// stores them as BF16 they would stay so.
struct WidenedWeights {
  std::string path;  // of the file
  uint64_t tensors = 0;
  uint64_t file_bytes = 0, memory_bytes = 0, bf16_bytes = 0;
};
WidenedWeights widened_weights(const Recipe& recipe, const Graph& graph);  // of build_model()'s graph
// "513.1 MiB of the state are frozen weights ...", for people.
std::string widened_text(const WidenedWeights& widened);

// Refuses patterns of freeze, no_decay and init.skip that match nothing: what a recipe says of names that only the graph knows.
void check_names(const Recipe& recipe, const RecipeRules& rules);
// Refuses an init.from that is no file of weights.
void check_initial_weights(const Recipe& recipe, const RecipeRules& rules);

}  // namespace reprise
