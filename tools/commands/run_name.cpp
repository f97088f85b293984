// `reprise name`: a recipe's name, which the Makefile makes the folder of its plan.
#include <iostream>
#include <memory>

#include "tools/commands/recipe_options.h"

namespace reprise {

Command add_name(OptionParser& app) {
  const auto recipe = std::make_shared<RecipeOptions>();
  const auto backend = std::make_shared<bool>(false), ranks = std::make_shared<bool>(false);
  OptionParser* parser = app.add_subcommand("name", "print a recipe's name");
  recipe->add_to(*parser);
  parser->add_flag("--backend", *backend, "print its backend instead: cpu, cuda or auto");
  parser->add_flag("--ranks", *ranks, "print how many processes train it together instead");
  return {parser, [recipe, backend, ranks] {
            const Recipe read = recipe->read();
            std::cout << (*ranks ? std::to_string(read.ranks()) : *backend ? backend_word(read.backend) : read.name) << "\n";
            return 0;
          }};
}

}  // namespace reprise
