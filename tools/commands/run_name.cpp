// `reprise name`: a recipe's name, which the Makefile makes the folder of its plan.
#include <iostream>
#include <memory>

#include "tools/commands/recipe_options.h"

namespace reprise {

Command add_name(CLI::App& app) {
  const auto recipe = std::make_shared<RecipeOptions>();
  CLI::App* parser = app.add_subcommand("name", "print a recipe's name");
  recipe->add_to(*parser);
  return {parser, [recipe] {
            std::cout << recipe->read().name << "\n";
            return 0;
          }};
}

}  // namespace reprise
