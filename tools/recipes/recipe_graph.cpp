// The marks of recipe_graph.h, by patterns over the parameters' names.
#include "tools/recipes/recipe_graph.h"

#include <algorithm>
#include <set>

#include "tools/formats/error.h"
#include "tools/formats/json_text.h"
#include "tools/weights/weight_source.h"

namespace reprise {

namespace {

void unmark(Graph& graph, const RecipeRules& rules, const std::vector<std::string>& patterns, const std::string& field, bool Value::*mark) {
  for (size_t n = 0; n < patterns.size(); ++n) {
    bool matched = false;
    for (Value& value : graph.values) {
      if (value.kind != ValueKind::kParameter || !matches_pattern(patterns[n], value.name)) continue;
      value.*mark = false;
      matched = true;
    }
    rules.require(matched, field + "[" + std::to_string(n) + "]",
                  "\"" + patterns[n] + "\" matches no parameter; name one that `reprise parameters` lists, or use * and ?");
  }
}

AdapterChoice adapters_of(const LoraSettings& lora) {
  return {.rank = static_cast<uint32_t>(lora.r), .scale = static_cast<float>(lora.scale()), .dropout = static_cast<float>(lora.dropout), .targets = lora.targets};
}

// The linear layers' names, each last part once, for who has named one that is not there.
std::string layers_to_name(const Graph& graph) {
  std::set<std::string> parts;
  for (const Node& node : graph.nodes) {
    if (node.op == Op::kLinear) parts.insert(node.name.substr(node.name.rfind('.') + 1));
  }
  parts.erase("lora_A");
  return quoted_list({parts.begin(), parts.end()});
}

void freeze_all_but_adapters(Graph& graph, const RecipeRules& rules, const LoraSettings& lora) {
  for (Value& value : graph.values) {
    if (value.kind == ValueKind::kParameter && !is_adapter(value.name)) value.trainable = false;
  }
  for (size_t n = 0; n < lora.targets.size(); ++n) {
    const AdapterChoice one = {.rank = 1, .targets = {lora.targets[n]}};
    const bool matched = std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) { return node.op == Op::kLinear && one.takes(node.name); });
    rules.require(matched, "lora.targets[" + std::to_string(n) + "]", "\"" + lora.targets[n] + "\" is no linear layer of the model, which has " + layers_to_name(graph));
  }
}

}  // namespace

Graph build_model(const Recipe& recipe, const RecipeRules& rules) { return build_model(recipe, rules, micro_batch_of(recipe)); }

Graph build_model(const Recipe& recipe, const RecipeRules& rules, MicroBatch batch) {
  Graph graph(recipe.dtype == Recipe::Dtype::kBf16 ? DType::kBf16 : DType::kF32);
  if (recipe.lora) graph.adapters = adapters_of(*recipe.lora);
  build_model(recipe.model, graph, batch);
  if (recipe.lora) freeze_all_but_adapters(graph, rules, *recipe.lora);
  unmark(graph, rules, recipe.freeze, "freeze", &Value::trainable);
  unmark(graph, rules, recipe.optimizer.no_decay, "optimizer.no_decay", &Value::decays);
  const bool trains = std::any_of(graph.values.begin(), graph.values.end(), [](const Value& value) { return value.trainable; });
  rules.require(trains, "freeze", "every parameter is frozen; leave one to train");
  return graph;
}

void check_names(const Recipe& recipe, const RecipeRules& rules) {
  const Graph graph = build_model(recipe, rules);
  for (size_t n = 0; n < recipe.init.skip.size(); ++n) {
    const std::string& pattern = recipe.init.skip[n];
    const auto matches = [&](const Value& value) {
      return (value.kind == ValueKind::kParameter || value.kind == ValueKind::kBuffer) && matches_pattern(pattern, value.name);
    };
    rules.require(std::any_of(graph.values.begin(), graph.values.end(), matches), "init.skip[" + std::to_string(n) + "]",
                  "\"" + pattern + "\" matches no tensor of the model; name one that `reprise parameters` lists, or use * and ?");
  }
}

void check_initial_weights(const Recipe& recipe, const RecipeRules& rules) {
  if (recipe.init.from.empty()) return;
  try {
    open_weights(recipe.init.from);
  } catch (const UserError& error) {
    rules.require(false, "init.from", error.what());
  }
}

}  // namespace reprise
