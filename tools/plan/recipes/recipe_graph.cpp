// See recipe_graph.h. Parameters are marked by patterns over their names.
#include "tools/plan/recipes/recipe_graph.h"

#include <algorithm>
#include <set>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/text.h"
#include "tools/files/weights/weight_source.h"
#include "tools/plan/graph/cuts.h"

namespace reprise {

namespace {

void unmark(Graph& graph, const RecipeRules& rules, const std::vector<std::string>& patterns, const std::string& field,
            bool Value::*mark) {
  for (size_t n = 0; n < patterns.size(); ++n) {
    bool matched = false;
    for (Value& value : graph.values) {
      const bool is_marked = value.kind == ValueKind::kParameter || value.trainable;
      if (!is_marked || !matches_pattern(patterns[n], value.name)) continue;
      value.*mark = false;
      matched = true;
    }
    rules.require(matched, field + "[" + std::to_string(n) + "]",
                  "\"" + patterns[n] +
                      "\" matches no parameter; name one that `reprise parameters` lists, or use * and ?");
  }
}

AdapterForm adapter_of(const LoraSettings& lora, const std::string& layer) {
  if (!lora.targets_layer(layer) || lora.saves_module(layer)) return {};
  return {.rank = static_cast<uint32_t>(lora.rank_of(layer)),
          .scale = static_cast<float>(lora.scale_of(layer)),
          .dropout = static_cast<float>(lora.dropout),
          .dora = lora.dora,
          .is_named = !lora.targets.empty()};
}

// Returns the modules to which a parameter belongs. A table that is also the head's weight belongs
// to both.
std::vector<std::string> modules_of(const Graph& graph, ValueId parameter) {
  const std::string& name = graph.values[parameter].name;
  std::vector<std::string> modules = {name.substr(0, name.rfind('.'))};
  const Node& head = graph.nodes.back();
  if (head.op == Op::kLossHead && head.parameters[0] == parameter && head.name != modules[0])
    modules.push_back(head.name);
  return modules;
}

// Calls visit(module, parameter) for all parameters except those of adapters.
template <typename Visit>
void for_each_module(const Graph& graph, const Visit& visit) {
  for (ValueId v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].kind != ValueKind::kParameter || is_adapter(graph.values[v].name)) continue;
    for (const std::string& module : modules_of(graph, v)) visit(module, v);
  }
}

// Returns the distinct last parts of the names, as suggestions for a layer or module that does not
// exist.
std::string last_parts(const std::vector<std::string>& names) {
  std::set<std::string> parts;
  for (const std::string& name : names) parts.insert(name.substr(name.rfind('.') + 1));
  return quoted_list({parts.begin(), parts.end()});
}

// Returns the layers that may have an adapter (linear layers, and convolutions of one group) or, if
// `with_adapter`, those that have one.
std::vector<std::string> layers_for_adapters(const Graph& graph, bool with_adapter) {
  std::set<std::string> adapters;
  for (const Value& value : graph.values) {
    if (is_adapter(value.name)) adapters.insert(value.name);
  }
  std::vector<std::string> layers;
  for (const Node& node : graph.nodes) {
    const bool may_have = node.op == Op::kLinear ||
                          (node.op == Op::kConv && graph.attributes.of<WindowAttribute>()[node.attribute].groups == 1);
    const bool is_half = node.name.ends_with(".lora_A") || node.name.ends_with(".lora_B");
    if (may_have && !is_half && (!with_adapter || adapters.count(node.name + ".lora_A.weight") > 0))
      layers.push_back(node.name);
  }
  return layers;
}

// Requires that tables with new rows are trained: rows that kept their initial values would teach
// nothing.
void require_tables_train(const Graph& graph, const RecipeRules& rules, const Recipe& recipe) {
  std::vector<std::string> frozen, modules;
  for (const Node& node : graph.nodes) {
    if (node.op != Op::kEmbedding && node.op != Op::kLossHead) continue;
    const Value& table = graph.values[node.parameters[0]];
    if (table.trainable || std::count(frozen.begin(), frozen.end(), table.name) > 0) continue;
    const std::string module = table.name.substr(0, table.name.rfind('.'));
    frozen.push_back(table.name);
    modules.push_back(module.substr(module.rfind('.') + 1));
  }
  const std::string adds = recipe.lora ? "add \"modules_to_save\": [" + quoted_list(modules) + "] to lora"
                                       : "freeze must leave out " + quoted_list(frozen);
  rules.require(frozen.empty(), "model.new_tokens", "their rows must be trained: " + adds);
}

void freeze_all_but_adapters(Graph& graph, const LoraSettings& lora) {
  for (Value& value : graph.values) {
    if (!is_adapter(value.name)) value.trainable = false;
    if (value.name.ends_with(".lora_B.weight")) value.rate = static_cast<float>(lora.lr_ratio);
  }
  for_each_module(graph, [&](const std::string& module, ValueId v) {
    graph.values[v].trainable |= lora.saves_module(module);
  });
}

// Requires that layers with newly drawn weights are trained: otherwise all other layers would learn
// to fit random weights.
void require_new_layers_train(const Graph& graph, const RecipeRules& rules, const Recipe& recipe) {
  for (const Value& value : graph.values) {
    const bool is_new = std::any_of(recipe.init.skip.begin(), recipe.init.skip.end(),
                                    [&](const std::string& pattern) { return matches_pattern(pattern, value.name); });
    rules.require(value.kind != ValueKind::kParameter || value.trainable || !is_new, "lora.modules_to_save",
                  "must name \"" + value.name.substr(0, value.name.rfind('.')) + "\", which init.skip draws anew");
  }
}

bool any_matches(const std::string& pattern, const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return matches_end(pattern, name); });
}

// Refuses patterns that match nothing. Patterns of ranks and alphas must match layers with an
// adapter.
void check_patterns(const Graph& graph, const RecipeRules& rules, const LoraSettings& lora) {
  const std::vector<std::string> layers = layers_for_adapters(graph, false), adapted = layers_for_adapters(graph, true);
  rules.require(!adapted.empty() || !lora.targets.empty(), "lora.modules_to_save",
                "leaves no layer an adapter; name fewer modules, or train the model without \"lora\"");
  for (size_t n = 0; n < lora.targets.size(); ++n) {
    const std::string field = "lora.targets[" + std::to_string(n) + "]", quoted = "\"" + lora.targets[n] + "\"";
    rules.require(any_matches(lora.targets[n], layers), field,
                  quoted + " is no linear layer or convolution of one group of the model, which has " +
                      last_parts(layers));
    rules.require(any_matches(lora.targets[n], adapted), field,
                  quoted + " is trained whole by lora.modules_to_save; name it in one of the two");
  }
  const auto check_map = [&](const auto& map, const std::string& key) {
    for (const auto& entry : map) {
      rules.require(any_matches(entry.first, adapted), "lora." + key + "." + entry.first,
                    "matches no layer with an adapter; those are " + last_parts(adapted));
    }
  };
  check_map(lora.rank_pattern, "rank_pattern");
  check_map(lora.alpha_pattern, "alpha_pattern");
  std::vector<std::string> modules;
  for_each_module(graph, [&](const std::string& module, ValueId) { modules.push_back(module); });
  for (size_t n = 0; n < lora.modules_to_save.size(); ++n) {
    LoraSettings one;
    one.modules_to_save = {lora.modules_to_save[n]};
    const bool matches = std::any_of(modules.begin(), modules.end(),
                                     [&](const std::string& module) { return one.saves_module(module); });
    rules.require(matches, "lora.modules_to_save[" + std::to_string(n) + "]",
                  "\"" + lora.modules_to_save[n] + "\" is no module of the model with parameters, which has " +
                      last_parts(modules));
  }
}

// Returns a graph with the model's nodes, adapters and judged pairs, but without cuts and without
// marks on parameters.
Graph nodes_of(const Recipe& recipe, MicroBatch batch) {
  Graph graph(recipe.dtype == Recipe::Dtype::kBf16 ? DType::kBf16 : DType::kF32);
  if (recipe.lora)
    graph.adapters = [&lora = *recipe.lora](const std::string& layer) { return adapter_of(lora, layer); };
  if (batch.pairs > 0) graph.judge_pairs(*recipe.loss, static_cast<uint32_t>(batch.pairs));
  build_model(recipe.model, graph, batch);
  graph.adapters = nullptr;
  return graph;
}

}  // namespace

Graph build_model(const Recipe& recipe, const RecipeRules& rules) {
  return build_model(recipe, rules, micro_batch_of(recipe));
}

Graph build_model(const Recipe& recipe, const RecipeRules& rules, MicroBatch batch) {
  Graph graph = nodes_of(recipe, batch);
  graph.boundaries =
      find_cuts(graph, recipe.core == Recipe::CoreSize::kSmall ? kMaxValuesOnSmallCore : kMaxCandidates);
  if (recipe.lora) {
    freeze_all_but_adapters(graph, *recipe.lora);
    check_patterns(graph, rules, *recipe.lora);
    if (describe_model(recipe.model).input != ModelDescription::Input::kTokens)
      require_new_layers_train(graph, rules, recipe);
  }
  unmark(graph, rules, recipe.freeze, "freeze", &Value::trainable);
  unmark(graph, rules, recipe.optimizer.no_decay, "optimizer.no_decay", &Value::decays);
  leave_unreached(graph);
  if (!recipe.place.new_tokens.empty()) require_tables_train(graph, rules, recipe);
  const bool trains =
      std::any_of(graph.values.begin(), graph.values.end(), [](const Value& value) { return reprise::trains(value); });
  rules.require(trains, "freeze", "every parameter is frozen; leave one to train");
  return graph;
}

StoredForms stored_forms(const Recipe& recipe) {
  if (!model_config(recipe.model).contains("stored")) return {};
  return nodes_of(recipe, micro_batch_of(recipe)).forms();
}

void check_names(const Recipe& recipe, const RecipeRules& rules) {
  const Graph graph = build_model(recipe, rules);
  for (size_t n = 0; n < recipe.init.skip.size(); ++n) {
    const std::string& pattern = recipe.init.skip[n];
    const auto matches = [&](const Value& value) {
      return (value.kind == ValueKind::kParameter || value.kind == ValueKind::kBuffer) &&
             matches_pattern(pattern, value.name);
    };
    rules.require(std::any_of(graph.values.begin(), graph.values.end(), matches),
                  "init.skip[" + std::to_string(n) + "]",
                  "\"" + pattern +
                      "\" matches no tensor of the model; name one that `reprise parameters` lists, or use * and ?");
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
