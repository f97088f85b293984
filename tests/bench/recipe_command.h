// The command line of a benchmark that measures recipes: its own options, and then recipe files, or
// the benchmark's defaults. All such benchmarks handle --help, an unknown option and a faulty
// recipe in the same way.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "tools/files/io/error.h"
#include "tools/plan/recipes/recipe.h"

namespace reprise::bench {

// Parses the command line and measures every recipe. `app` contains the benchmark's own options.
// Returns the exit status of the process.
inline int measure_recipes(CLI::App& app, int argc, char** argv, const std::vector<const char*>& defaults,
                           const std::function<void(const Recipe&)>& measure) {
  std::vector<std::string> files;
  app.add_option("recipes", files, "recipe files");
  try {
    app.parse(argc, argv);
    if (files.empty()) {
      for (const char* text : defaults) measure(parse_recipe(text, app.get_name(), "/"));
    }
    for (const std::string& file : files) measure(read_recipe(file));
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : UserError::kUsage;
  } catch (const UserError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.status;
  }
}

}  // namespace reprise::bench
