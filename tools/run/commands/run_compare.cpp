// `reprise compare`: compares all strategies, at one budget or at many; or compares the time of a
// step on several numbers of boards.
#include <algorithm>
#include <charconv>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "tools/files/drawing/front_svg.h"
#include "tools/files/io/error.h"
#include "tools/files/io/output.h"
#include "tools/files/io/output_file.h"
#include "tools/plan/planning/compare.h"
#include "tools/plan/planning/compare_ranks.h"
#include "tools/plan/schedule/chain_json.h"
#include "tools/run/commands/recipe_options.h"

namespace reprise {

namespace {

constexpr OutputKind kFront = {"front"};

struct CompareOptions {
  RecipeOptions recipe;
  bool json = false, sweep = false;
  std::string svg, ranks;
};

// Parses numbers of ranks, for example "1,2,4,8".
std::vector<uint32_t> ranks_of(const std::string& text) {
  std::vector<uint32_t> ranks;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    uint32_t number = 0;
    const auto [stopped, error] = std::from_chars(text.data() + at, text.data() + end, number);
    if (error != std::errc() || stopped != text.data() + end || number < 1 || number > kMaxRanks) {
      throw UserError("--ranks: must be numbers from 1 to " + std::to_string(kMaxRanks) +
                      " with commas between them, as 1,2,4, not \"" + text + "\"");
    }
    ranks.push_back(number);
    at = end + 1;
  }
  return ranks;
}

int run_ranks(const CompareOptions& options) {
  const std::vector<uint32_t> ranks = ranks_of(options.ranks);
  RecipeOptions recipe = options.recipe;
  // Uses the largest number of ranks, so that solve() reports a key of the recipe that forbids
  // several ranks.
  recipe.ranks = static_cast<int>(*std::max_element(ranks.begin(), ranks.end()));
  const nlohmann::json answer = compare_ranks(recipe.solve(), ranks);
  if (options.json) {
    print_json(answer);
  } else {
    std::cout << ranks_text(answer);
  }
  return 0;
}

int run_chain_file(const CompareOptions& options) {
  if (options.sweep || !options.ranks.empty() || !options.recipe.profile.empty()) {
    const std::string option = options.sweep ? "--sweep" : options.ranks.empty() ? "--profile" : "--ranks";
    throw UserError(options.recipe.recipe + ": " + option +
                        ": is of a recipe, and this is a chain file, which has costs and bytes of its own",
                    UserError::kUsage);
  }
  const std::optional<std::string>& budget = options.recipe.budget;
  const Chain chain = read_chain(options.recipe.recipe);
  const nlohmann::json answer =
      compare_strategies(chain, budget ? std::optional(parse_bytes(*budget, "--budget")) : std::nullopt);
  if (options.json) {
    print_json(answer);
  } else {
    std::cout << comparison_text(answer, ComparedKind::kChain);
  }
  return 0;
}

int run_compare(const CompareOptions& options) {
  if (is_chain_file(options.recipe.recipe)) return run_chain_file(options);
  if (!options.ranks.empty()) return run_ranks(options);
  std::optional<Output> svg;
  if (!options.svg.empty()) svg.emplace(options.svg, kFront, options.recipe.inputs());
  const SolvedModel model = options.recipe.solve();
  const nlohmann::json answer = options.sweep ? sweep_strategies(model) : compare_strategies(model);
  if (svg)
    svg->write("<!-- " + std::string(kWriterKey) + ": " + mark_of(kFront) + " -->\n" +
               front_svg(answer, model.recipe.name + ": memory against extra work"));
  if (options.json || options.sweep) {
    print_json(answer);
  } else {
    std::cout << comparison_text(answer);
  }
  return 0;
}

}  // namespace

Command add_compare(OptionParser& app, const Port& port) {
  const auto options = std::make_shared<CompareOptions>();
  OptionParser* parser = app.add_subcommand(
      "compare",
      "every strategy side by side at the budget of a recipe or a chain file; or a step on more and more boards");
  options->recipe.add_to(*parser);
  options->recipe.add_profile_to(*parser, port);
  parser->add_flag("--json", options->json, "one JSON value on stdout");
  Option* sweep = parser->add_flag("--sweep", options->sweep, "the memory-time front of every strategy, as JSON");
  parser->add_option("--svg", options->svg, "file: the sweep as a picture")->check(not_empty())->needs(sweep);
  parser
      ->add_option("--ranks", options->ranks,
                   "numbers of ranks, as 1,2,4,8: a step of each, simulated with a profile that has the wire; of N "
                   "ranks each receives N - 1 tensors for each of its own")
      ->needs(parser->get_option("--profile"))
      ->excludes(sweep);
  return {parser, [options] { return run_compare(*options); }};
}

}  // namespace reprise
