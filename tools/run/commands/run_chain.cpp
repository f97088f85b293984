// `reprise chain`: prints a recipe's chain of links, for `reprise schedule` and for other planners.
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "tools/files/io/output.h"
#include "tools/plan/schedule/chain_json.h"
#include "tools/run/commands/recipe_options.h"

namespace reprise {

Command add_chain(OptionParser& app) {
  struct ChainOptions {
    RecipeOptions recipe;
    std::string output;
  };
  const auto options = std::make_shared<ChainOptions>();
  OptionParser* parser = app.add_subcommand("chain", "write a recipe's chain of links as JSON");
  options->recipe.add_to(*parser);
  parser->add_option("-o,--output", options->output, "file; default: stdout")->check(not_empty());
  return {parser, [options] {
            std::optional<Output> output;
            if (!options->output.empty()) output.emplace(options->output, kChainFile, options->recipe.inputs());
            const SolvedModel model = options->recipe.solve();
            if (!output) {
              std::cout << chain_to_json(model.chain).dump(1) << "\n";
            } else {
              write_chain(*output, model.chain);
            }
            return 0;
          }};
}

}  // namespace reprise
