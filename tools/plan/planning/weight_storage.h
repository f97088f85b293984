// Storage formats of a network's parameters. Trained parameters are f32, or bf16 for matrices.
// Frozen matrices are stored as in their file, or as the recipe asks. A frozen matrix's format
// depends on the recipe, which names the file; on the file's format; and on the backend's rules,
// which state the formats that each kernel that reads the matrix accepts.
#pragma once

#include <memory>
#include <string>

#include "lib/backend_rules.h"
#include "tools/files/weights/weight_source.h"
#include "tools/plan/graph/graph.h"
#include "tools/plan/recipes/recipe.h"

namespace reprise {

// Opens weights for the recipe's model, from its own or other files (weight_source.h). Frozen
// matrices have the recipe's format, and tables have rows for new tokens. If another file already
// has such rows, they are kept.
std::unique_ptr<WeightSource> open_model_weights(const Recipe& recipe, const std::string& path);

// Opens the published weights of the recipe's model as open_model_weights() does. Returns null if
// the recipe freezes no parameter, or if training does not start from published weights.
std::unique_ptr<WeightSource> open_published(const Recipe& recipe);

// Builds the network of the recipe's model (recipe_graph.h) as it is planned for a backend.
// `published`: the result of open_published().
Graph build_stored_model(const Recipe& recipe, const BackendRules& rules, MicroBatch batch,
                         const WeightSource* published);
Graph build_stored_model(const Recipe& recipe, const BackendRules& rules, MicroBatch batch);
Graph build_stored_model(const Recipe& recipe, const BackendRules& rules);  // for the recipe's micro-batch

// Frozen matrices that need more bytes in memory than in the model's own files, because they become
// f32.
struct WidenedWeights {
  std::string path;  // path of the file
  uint64_t tensors = 0;
  uint64_t file_bytes = 0, memory_bytes = 0, bf16_bytes = 0;
};
// Returns the widened weights of a graph from build_stored_model().
WidenedWeights widened_weights(const Recipe& recipe, const Graph& graph);
// Returns a note for the user: the bytes of the widened weights in memory and in the file, and the
// bytes that they would need as bf16.
std::string widened_text(const WidenedWeights& widened);

}  // namespace reprise
