// `reprise parameters`: lists the names that a recipe's "freeze" and "no_decay" can contain.
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/files/io/shown_text.h"
#include "tools/plan/onnx/findings.h"
#include "tools/plan/recipes/recipe_graph.h"
#include "tools/run/commands/command.h"
#include "tools/run/snapshots/state_tensors.h"

namespace reprise {

namespace {

nlohmann::json parameters_of(const std::string& file) {
  RecipeRules rules;
  const Recipe recipe = read_recipe(file, rules);
  nlohmann::json list = nlohmann::json::array();
  uint64_t elements = 0, trained = 0;
  const Graph graph = build_model(recipe, rules);
  for (const Value& value : graph.values) {
    if (value.kind != ValueKind::kParameter) continue;
    const auto form = graph.forms().find(value.name);
    const std::vector<uint64_t> shape = form == graph.forms().end() ? stored_shape(value.tensor) : form->second.shape;
    const uint64_t count = value.tensor.elements();
    list.push_back({{"name", value.name}, {"shape", shape}, {"elements", count}, {"trains", value.trainable},
                    {"decays", value.trainable && value.decays}});
    elements += count;
    if (value.trainable) trained += count;
  }
  return {{"parameters", list}, {"elements", elements}, {"trained_elements", trained}, {"findings", findings_of(file)}};
}

std::string parameters_text(const nlohmann::json& answer) {
  size_t widest = 4;
  for (const nlohmann::json& parameter : answer.at("parameters"))
    widest = std::max(widest, shown_text(parameter.at("name").get<std::string>()).size());
  std::string text;
  const auto add_line = [&](const std::string& name, const std::string& shape, const std::string& elements,
                            const char* trains, const char* decays) {
    char line[128];
    std::snprintf(line, sizeof line, "  %-20s %12s  %-6s  %s\n", shape.c_str(), elements.c_str(), trains, decays);
    text += name + std::string(widest - name.size(), ' ') + line;
  };
  add_line("name", "shape", "elements", "trains", "decays");
  for (const nlohmann::json& parameter : answer.at("parameters")) {
    add_line(shown_text(parameter.at("name").get<std::string>()), parameter.at("shape").dump(),
             parameter.at("elements").dump(), parameter.at("trains") ? "yes" : "no",
             parameter.at("decays") ? "yes" : "no");
  }
  return text + std::to_string(answer.at("parameters").size()) + " parameters, " + answer.at("elements").dump() +
         " elements, of which " + answer.at("trained_elements").dump() + " train\n";
}

}  // namespace

Command add_parameters(OptionParser& app) {
  struct Options {
    std::string recipe;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  OptionParser* parser = app.add_subcommand("parameters", "list what a recipe's \"freeze\" and \"no_decay\" can name");
  parser->add_option("RECIPE", options->recipe, "recipe file (JSON)")->required();
  parser->add_flag("--json", options->json, "one JSON value on stdout");
  return {parser, [options] {
            const nlohmann::json answer = parameters_of(options->recipe);
            if (options->json) {
              print_json(answer);
            } else {
              std::cout << parameters_text(answer);
            }
            return 0;
          }};
}

}  // namespace reprise
