// `reprise chain`: a recipe's chain of links, for `reprise schedule` and other people's planners.
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/commands/recipe_options.h"
#include "tools/formats/output_file.h"
#include "tools/schedule/chain_json.h"

namespace reprise {

Command add_chain(OptionParser& app) {
  struct ChainOptions {
    RecipeOptions recipe;
    std::string output;
  };
  const auto options = std::make_shared<ChainOptions>();
  OptionParser* parser = app.add_subcommand("chain", "write a recipe's chain of links as JSON");
  options->recipe.add_to(*parser);
  parser->add_option("-o,--output", options->output, "file; default: stdout");
  return {parser, [options] {
            if (!options->output.empty()) require_other_file(options->output, options->recipe.recipe);
            const SolvedModel model = options->recipe.solve();
            if (options->output.empty()) {
              std::cout << chain_to_json(model.chain).dump(1) << "\n";
            } else {
              write_chain(options->output, model.chain);
            }
            return 0;
          }};
}

}  // namespace reprise
