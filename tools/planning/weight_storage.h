// How the parameters of a network lie in memory: trained ones as f32, or matrices as bf16, and frozen matrices as their file stores them, or as
// the recipe asks.
// Here because it takes three to say: the recipe, which names the file; the file, which has a format; and the backend's rules, which say what
// every kernel that reads the matrix takes.
#pragma once

#include <memory>
#include <string>

#include "lib/backend_rules.h"
#include "tools/graph/graph.h"
#include "tools/recipes/recipe.h"
#include "tools/weights/weight_source.h"

namespace reprise {

// Weights for the recipe's model, from its own files or others (weight_source.h), with frozen matrices in the format that the recipe asks
// for, and with rows for new tokens. Others that have such rows already keep them.
std::unique_ptr<WeightSource> open_model_weights(const Recipe& recipe, const std::string& path);

// What the recipe's model has on file, as open_model_weights() opens it, where frozen matrices are stored by it; else null.
std::unique_ptr<WeightSource> open_published(const Recipe& recipe);

// The network of the recipe's model (recipe_graph.h) as it is planned for a backend, with what open_published() answers.
Graph build_stored_model(const Recipe& recipe, const BackendRules& rules, MicroBatch batch, const WeightSource* published);
Graph build_stored_model(const Recipe& recipe, const BackendRules& rules, MicroBatch batch);
Graph build_stored_model(const Recipe& recipe, const BackendRules& rules);  // for the recipe's micro-batch

// Frozen matrices that the model's own files store in fewer bytes than they take in memory, because they become f32 there.
struct WidenedWeights {
  std::string path;  // of the file
  uint64_t tensors = 0;
  uint64_t file_bytes = 0, memory_bytes = 0, bf16_bytes = 0;
};
WidenedWeights widened_weights(const Recipe& recipe, const Graph& graph);  // of a build_stored_model()
// "513.1 MiB of the state are frozen weights ...", for people.
std::string widened_text(const WidenedWeights& widened);

}  // namespace reprise
