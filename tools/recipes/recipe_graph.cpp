// The marks of recipe_graph.h, by patterns over the parameters' names.
#include "tools/recipes/recipe_graph.h"

#include <algorithm>

#include "tools/formats/error.h"

namespace reprise {

namespace {

void unmark(Graph& graph, const Recipe& recipe, const std::vector<std::string>& patterns, const std::string& field, bool Value::*mark) {
  for (const std::string& pattern : patterns) {
    bool matched = false;
    for (Value& value : graph.values) {
      if (value.kind != ValueKind::kParameter || !matches_pattern(pattern, value.name)) continue;
      value.*mark = false;
      matched = true;
    }
    if (!matched) throw UserError(recipe.name + ": " + field + ": \"" + pattern + "\" matches no parameter; name one as `audit` lists them, or use * and ?");
  }
}

}  // namespace

Graph build_model(const Recipe& recipe) {
  Graph graph(recipe.dtype == Recipe::Dtype::kBf16 ? DType::kBf16 : DType::kF32);
  build_model(recipe.model, graph, {.samples = recipe.batch, .sequence = recipe.sequence});
  unmark(graph, recipe, recipe.freeze, "freeze", &Value::trainable);
  unmark(graph, recipe, recipe.optimizer.no_decay, "optimizer.no_decay", &Value::decays);
  if (std::none_of(graph.values.begin(), graph.values.end(), [](const Value& value) { return value.trainable; })) {
    throw UserError(recipe.name + ": freeze: every parameter is frozen; leave one to train");
  }
  return graph;
}

}  // namespace reprise
