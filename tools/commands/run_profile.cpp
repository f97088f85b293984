// `reprise profile`: every kernel call of a recipe, measured on this machine.
#include <unistd.h>

#include <iostream>
#include <memory>

#include "tools/commands/recipe_options.h"
#include "tools/formats/error.h"
#include "tools/formats/output_file.h"
#include "tools/profiling/measure.h"
#include "tools/recipes/recipe_graph.h"

namespace reprise {

namespace {

int run_profile(const Port& port, const RecipeOptions& options, const std::string& output, uint32_t threads) {
  RecipeRules rules;
  const Recipe recipe = options.read(rules);
  check_names(recipe, rules);
  if (recipe.backend == Recipe::BackendChoice::kCuda) {
    throw UserError(options.recipe + ": backend: \"cuda\" cannot be measured here; use \"cpu\", or \"auto\"");
  }
  require_other_file(output, options.recipe);
  if (::access(output.c_str(), F_OK) == 0) (void)read_profile(output);  // what is no profile stays
  MeasureOptions measure;
  measure.threads = threads;
  measure.say = [](const std::string& line) { std::cerr << line << "\n"; };
  const std::string spill = output + ".spill";  // beside the profile: the folder says which disk is measured
  measure.spill_file = spill.c_str();
  const Profile profile = measure_profile(port, recipe, measure);
  replace_file(output, profile_text(profile));
  std::cerr << profile.kernels.size() << " distinct kernel calls, " << profile.threads << (profile.threads == 1 ? " thread" : " threads") << ", kernels "
            << profile.kernel_set << "\n";
  return 0;
}

}  // namespace

Command add_profile(OptionParser& app, const Port& port) {
  struct ProfileOptions {
    RecipeOptions recipe;
    std::string output;
    uint32_t threads = 0;
  };
  const auto options = std::make_shared<ProfileOptions>();
  OptionParser* parser = app.add_subcommand("profile", "measure every kernel call of a recipe on this machine");
  options->recipe.add_to(*parser);
  parser->add_option("-o,--output", options->output, "file; a recipe with a disk measures the disk of its folder")->required();
  parser->add_option("--threads", options->threads, "workers; default: one for each processor")->check(integer_from(1, port.most_workers));
  return {parser, [options, &port] { return run_profile(port, options->recipe, options->output, options->threads); }};
}

}  // namespace reprise
