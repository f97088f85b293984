// `reprise name`: prints a recipe's name. The Makefile uses it as the name of the plan's folder.
#include <iostream>
#include <memory>

#include "tools/files/io/shown_text.h"
#include "tools/run/commands/recipe_options.h"

namespace reprise {

Command add_name(OptionParser& app) {
  const auto recipe = std::make_shared<RecipeOptions>();
  const auto backend = std::make_shared<bool>(false), ranks = std::make_shared<bool>(false),
             files = std::make_shared<bool>(false);
  OptionParser* parser = app.add_subcommand("name", "print a recipe's name");
  recipe->add_to(*parser);
  parser->add_flag("--backend", *backend, "print its backend instead: cpu, cuda or auto");
  parser->add_flag("--ranks", *ranks, "print how many processes train it together instead");
  parser->add_flag("--files", *files,
                   "print the files and folders that a training reads, a line each, with the program's option that "
                   "says where each is");
  return {parser, [recipe, backend, ranks, files] {
            const Recipe read = recipe->read();
            if (*files) {
              for (const NamedFile& file : named_files(read))
                std::cout << escaped_text(file.path) << " (" << file.key << ", " << file.option << ")\n";
              return 0;
            }
            std::cout << (*ranks     ? std::to_string(read.ranks())
                          : *backend ? backend_word(read.backend)
                                     : read.name)
                      << "\n";
            return 0;
          }};
}

}  // namespace reprise
