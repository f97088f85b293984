// `reprise compare`: every strategy side by side, at one budget or over all of them.
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/commands/recipe_options.h"
#include "tools/drawing/front_svg.h"
#include "tools/formats/output_file.h"
#include "tools/planning/compare.h"

namespace reprise {

namespace {

int run_compare(const RecipeOptions& options, bool sweep, const std::string& svg, bool as_json) {
  if (!svg.empty()) require_other_file(svg, options.recipe);
  const SolvedModel model = options.solve();
  const nlohmann::json answer = sweep ? sweep_strategies(model) : compare_strategies(model);
  if (!svg.empty()) write_file(svg, front_svg(answer, model.recipe.name + ": memory against extra work"));
  if (as_json || sweep) {
    print_json(answer);
  } else {
    std::cout << comparison_text(answer);
  }
  return 0;
}

}  // namespace

Command add_compare(OptionParser& app, const Port& port) {
  struct CompareOptions {
    RecipeOptions recipe;
    bool json = false, sweep = false;
    std::string svg;
  };
  const auto options = std::make_shared<CompareOptions>();
  OptionParser* parser = app.add_subcommand("compare", "every strategy side by side at the recipe's budget");
  options->recipe.add_to(*parser);
  options->recipe.add_profile_to(*parser, port);
  parser->add_flag("--json", options->json, "one JSON value on stdout");
  Option* sweep = parser->add_flag("--sweep", options->sweep, "the memory-time front of every strategy, as JSON");
  parser->add_option("--svg", options->svg, "file: the sweep as a picture")->needs(sweep);
  return {parser, [options] { return run_compare(options->recipe, options->sweep, options->svg, options->json); }};
}

}  // namespace reprise
