// Chooses the family and marks what the recipe freezes or does not decay.
// Here because patterns over names are a matter of the recipe, not of a family.
// It must not know layers.
#include "tools/models/models.h"

#include "tools/formats/error.h"
#include "tools/models/gpt2.h"
#include "tools/models/resnet.h"

namespace reprise {

namespace {

void mark(Graph& graph, const Recipe& recipe, const std::vector<std::string>& patterns, const std::string& field,
          bool Value::*mark) {
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
  const uint32_t batch = static_cast<uint32_t>(recipe.batch);
  if (const auto* resnet = std::get_if<ResNetModel>(&recipe.model)) {
    build_resnet(graph, *resnet, batch);
  } else {
    build_gpt2(graph, std::get<Gpt2Model>(recipe.model), batch, static_cast<uint32_t>(recipe.sequence));
  }
  mark(graph, recipe, recipe.freeze, "freeze", &Value::trainable);
  mark(graph, recipe, recipe.optimizer.no_decay, "optimizer.no_decay", &Value::decays);
  bool any = false;
  for (const Value& value : graph.values) any = any || value.trainable;
  if (!any) throw UserError(recipe.name + ": freeze: every parameter is frozen; leave one to train");
  return graph;
}

}  // namespace reprise
