// The marks of recipe_graph.h, by patterns over the parameters' names.
#include "tools/recipes/recipe_graph.h"

#include <algorithm>
#include <set>

#include "tools/formats/error.h"
#include "tools/formats/json_text.h"
#include "tools/formats/text.h"
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

AdapterForm adapter_of(const LoraSettings& lora, const std::string& layer) {
  if (!lora.targets_layer(layer)) return {};
  return {.rank = static_cast<uint32_t>(lora.rank_of(layer)), .scale = static_cast<float>(lora.scale_of(layer)), .dropout = static_cast<float>(lora.dropout)};
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

void freeze_all_but_adapters(Graph& graph) {
  for (Value& value : graph.values) {
    if (value.kind == ValueKind::kParameter && !is_adapter(value.name)) value.trainable = false;
  }
}

// Patterns that match nothing. Those of ranks and alphas are of layers with an adapter.
void check_patterns(const Graph& graph, const RecipeRules& rules, const LoraSettings& lora) {
  const auto matches = [&](const std::string& pattern, bool with_adapter) {
    const auto is_it = [&](const Node& node) {
      return node.op == Op::kLinear && (!with_adapter || node.low_rank != kNoNode) && !node.name.ends_with(".lora_A") && matches_end(pattern, node.name);
    };
    return std::any_of(graph.nodes.begin(), graph.nodes.end(), is_it);
  };
  for (size_t n = 0; n < lora.targets.size(); ++n) {
    rules.require(matches(lora.targets[n], false), "lora.targets[" + std::to_string(n) + "]",
                  "\"" + lora.targets[n] + "\" is no linear layer of the model, which has " + layers_to_name(graph));
  }
  const auto check_map = [&](const auto& map, const std::string& key) {
    for (const auto& entry : map) rules.require(matches(entry.first, true), "lora." + key + "." + entry.first, "matches no layer with an adapter; the model has " + layers_to_name(graph));
  };
  check_map(lora.rank_pattern, "rank_pattern");
  check_map(lora.alpha_pattern, "alpha_pattern");
}

}  // namespace

Graph build_model(const Recipe& recipe, const RecipeRules& rules) { return build_model(recipe, rules, micro_batch_of(recipe)); }

Graph build_model(const Recipe& recipe, const RecipeRules& rules, MicroBatch batch) {
  Graph graph(recipe.dtype == Recipe::Dtype::kBf16 ? DType::kBf16 : DType::kF32);
  if (recipe.lora) graph.adapters = [&lora = *recipe.lora](const std::string& layer) { return adapter_of(lora, layer); };
  build_model(recipe.model, graph, batch);
  graph.adapters = nullptr;
  if (recipe.lora) freeze_all_but_adapters(graph), check_patterns(graph, rules, *recipe.lora);
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
