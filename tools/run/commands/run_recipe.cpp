// `reprise recipe`: prints the keys that a recipe may have, as text or as a JSON Schema for
// editors; or checks whether a file is a recipe.
#include <iostream>
#include <memory>

#include "tools/files/formats/json_text.h"
#include "tools/plan/models/model_examples.h"
#include "tools/plan/recipes/recipe_graph.h"
#include "tools/plan/recipes/recipe_reference.h"
#include "tools/run/commands/command.h"

namespace reprise {

namespace {

void check_recipe_file(const std::string& file) {
  RecipeRules rules;
  const Recipe recipe = read_recipe(file, rules);
  check_names(recipe, rules);
  check_initial_weights(recipe, rules);
  uint64_t tensors = 0, elements = 0;
  for (const Value& value : build_model(recipe).values) {
    if (value.kind != ValueKind::kParameter) continue;
    ++tensors;
    elements += value.tensor.elements();
  }
  std::cout << file << ": is a recipe of a " << model_json(recipe.model).at("family").get<std::string>() << ", \""
            << recipe.name << "\": " << tensors << " parameters with " << elements << " elements, batches of "
            << recipe.batch << "\n";
}

}  // namespace

Command add_recipe(OptionParser& app) {
  struct Options {
    bool reference = false, schema = false;
    std::string check, example;
  };
  const auto options = std::make_shared<Options>();
  OptionParser* parser =
      app.add_subcommand("recipe", "what a recipe may hold, examples of one, and whether a file is one");
  parser->add_flag("--reference", options->reference, "every key with form, default, unit and meaning (Markdown)");
  parser->add_flag("--schema", options->schema, "the same as JSON Schema, for editors");
  parser->add_option("--check", options->check, "a file: read and check it as a recipe; exit status 0 or 1");
  parser->add_option("--example", options->example,
                     "a whole recipe with comments, of one of: " + quoted_list(family_names()));
  parser->require_option(1);
  return {parser, [options] {
            if (options->reference) std::cout << recipe_reference();
            if (options->schema) print_json(recipe_schema());
            if (!options->example.empty()) std::cout << example_recipe(options->example);
            if (!options->check.empty()) check_recipe_file(options->check);
            return 0;
          }};
}

}  // namespace reprise
