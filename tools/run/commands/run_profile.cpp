// `reprise profile`: measures all kernel calls of a recipe on this machine.
#include <unistd.h>

#include <iostream>
#include <memory>
#include <optional>

#include "tools/files/io/error.h"
#include "tools/files/io/output.h"
#include "tools/plan/recipes/recipe_graph.h"
#include "tools/run/commands/recipe_options.h"
#include "tools/run/profiling/measure.h"
#include "tools/run/profiling/measure_wire.h"

namespace reprise {

namespace {

struct ProfileOptions {
  RecipeOptions recipe;
  std::string output, peers;
  uint32_t threads = 0;
};

int run_profile(const Port& port, const ProfileOptions& wanted) {
  const RecipeOptions& options = wanted.recipe;
  const std::string& output = wanted.output;
  RecipeRules rules;
  const Recipe recipe = options.read(rules);
  check_names(recipe, rules);
  if (recipe.backend == Recipe::BackendChoice::kCuda) {
    throw UserError(options.recipe + ": backend: \"cuda\" cannot be measured here; use \"cpu\", or \"auto\"");
  }
  const Output to(output, kProfileFile, options.inputs());
  // Measured before the kernels, because it takes seconds and the kernels take minutes.
  std::optional<Wire> wire;
  if (!wanted.peers.empty()) wire = measure_wire(wanted.peers);
  MeasureOptions measure;
  measure.threads = wanted.threads;
  measure.sums = wire.has_value();
  measure.say = [](const std::string& line) { std::cerr << line << "\n"; };
  // Next to the profile: the folder of the profile thus selects the disk that is measured.
  const std::string spill = output + ".spill";
  measure.spill_file = spill.c_str();
  Profile profile = measure_profile(port, recipe, measure);
  profile.wire = wire;
  to.write(profile_text(profile));
  std::cerr << profile.kernels.size() << " distinct kernel calls, " << profile.threads
            << (profile.threads == 1 ? " thread" : " threads") << ", kernels " << profile.kernel_set << "\n";
  if (wire) std::cerr << wire_words(*wire) << "\n";
  return 0;
}

}  // namespace

Command add_profile(OptionParser& app, const Port& port) {
  const auto options = std::make_shared<ProfileOptions>();
  OptionParser* parser = app.add_subcommand("profile", "measure every kernel call of a recipe on this machine");
  options->recipe.add_to(*parser);
  parser->add_option("-o,--output", options->output, "file; a recipe with a disk measures the disk of its folder")
      ->required();
  parser->add_option("--threads", options->threads, "workers; default: one for each processor")
      ->check(integer_from(1, port.max_workers));
  parser->add_option("--peers", options->peers,
                     "a command that starts build/peers_mpi in two processes or more, as \"mpirun -np 2 -H a,b "
                     "build/peers_mpi\": the wire between ranks is measured, too");
  return {parser, [options, &port] { return run_profile(port, *options); }};
}

}  // namespace reprise
