// See recipe_options.h.
#include "tools/run/commands/recipe_options.h"

#include <filesystem>
#include <iostream>
#include <memory>

#include "lib/reprise.h"
#include "tools/files/io/error.h"
#include "tools/files/progress/shown_output.h"
#include "tools/plan/costs/backends.h"
#include "tools/plan/planning/weight_storage.h"
#include "tools/plan/recipes/recipe_graph.h"
#include "tools/run/data/check_data.h"
#include "tools/run/profiling/doctor.h"
#include "tools/run/profiling/profile.h"
#include "tools/run/snapshots/initial_weights.h"

namespace reprise {

void RecipeOptions::add_to(OptionParser& app) {
  app.add_option("RECIPE", recipe, "recipe file (JSON)")->required();
  app.add_option("--budget", budget, "bytes of the whole arena: an integer or 7GiB, 512MiB; overrides the recipe's");
}

void RecipeOptions::add_schedule_to(OptionParser& app) {
  app.add_option("--schedule,--strategy", strategy,
                 "one of: none every-k sqrt revolve multistage h-revolve optimal ...; overrides the recipe's");
  app.add_option("--disk", disk, "bytes that boundaries may take on disk; overrides the recipe's");
  app.add_option("--host", host, "the same in pinned memory of the host, beside a card's");
  app.add_option("--k", k, "every-k, sqrt, chen-recursive: links per segment")->check(integer_from(1, kMaxLinks));
  app.add_option("--ranks", ranks, "how many processes train together; overrides the recipe's parallel.ranks")
      ->check(integer_from(1, kMaxRanks));
  app.add_option(
      "--policy", policy,
      "policy: dots, linear, attention-core, drop-bn-relu, ops:OP,... or names:PATTERN,... or offload:PATTERN,...");
}

void RecipeOptions::add_profile_to(OptionParser& app, const Port& port) {
  board = &port;
  app.add_option("--profile", profile, "file of `reprise profile`: measured costs, so that step times are predicted")
      ->check(not_empty());
}

std::string RecipeOptions::first_given() const {
  if (budget) return "--budget";
  if (!strategy.empty()) return "--schedule";
  if (!disk.empty()) return "--disk";
  if (!host.empty()) return "--host";
  if (k != 0) return "--k";
  if (ranks != 0) return "--ranks";
  if (!policy.empty()) return "--policy";
  return profile.empty() ? "" : "--profile";
}

std::vector<std::string> RecipeOptions::inputs() const {
  std::vector<std::string> inputs = inputs_of(read());
  inputs.insert(inputs.end(), {recipe, profile, model});
  return inputs;
}

Recipe RecipeOptions::read() const {
  RecipeRules unused;
  return read(unused);
}

Recipe RecipeOptions::read(RecipeRules& rules) const {
  Recipe result = model.empty() ? read_recipe(recipe, rules) : read_recipe_of_model(recipe, model, rules);
  if (backend) result.backend = *backend;
  if (small_core) {
    result.core = Recipe::CoreSize::kSmall;
    if (result.backend == Recipe::BackendChoice::kAuto) result.backend = Recipe::BackendChoice::kCpu;
  }
  if (budget) {
    result.budget_bytes = parse_bytes(*budget, "--budget");
    result.budgets.clear();
    result.feature_map_budget_bytes.reset();
  }
  // The parameters of the recipe's schedule are valid only for the recipe's own strategy. Another
  // strategy therefore starts with the default parameters.
  if (!strategy.empty() && strategy != result.schedule.strategy) {
    result.schedule = {};
    result.schedule.strategy = strategy;
  }
  if (!strategy.empty()) rules.options["schedule.strategy"] = "--schedule, --strategy";
  if (!disk.empty()) {
    result.schedule.disk_bytes = spill_bytes_of(disk, "--disk");
    rules.options["schedule.disk"] = "--disk";
  }
  if (!host.empty()) {
    result.schedule.host_bytes = spill_bytes_of(host, "--host");
    rules.options["schedule.host"] = "--host";
  }
  if (ranks != 0) {
    if (!result.parallel) result.parallel.emplace();
    result.parallel->ranks = ranks;
    rules.options["parallel.ranks"] = "--ranks";
  }
  if (k != 0) {
    result.schedule.k = k;
    rules.options["schedule.k"] = "--k";
  }
  if (!policy.empty()) result.schedule.policy = policy;
  // An error about the policy names --policy, also if --policy is missing and the command line
  // selects the strategy "policy".
  if (!policy.empty() || strategy == "policy") rules.options["schedule.policy"] = "--policy";
  check_recipe(result, rules);
  return result;
}

void RecipeOptions::look_first() const { look_at_data(read_model_first(), false); }

Recipe RecipeOptions::read_model_first() const {
  RecipeRules rules;
  const Recipe recipe = read(rules);
  if (const std::string missing = missing_weights(recipe); !missing.empty()) warn(missing);
  look_at_weights(recipe, rules, false);
  return recipe;
}

void look_at_weights(const Recipe& recipe, const RecipeRules& rules, bool must_be_there) {
  check_names(recipe, rules);
  const std::string path = !recipe.init.from.empty() ? recipe.init.from : published_weights(recipe);
  std::error_code ignored;
  if (path.empty() || (!must_be_there && !std::filesystem::exists(path, ignored))) return;
  require_weights_fit(build_model(recipe, rules), *open_model_weights(recipe, path),
                      {.skip = recipe.init.skip, .allow_missing = recipe.init.allow_missing});
}

SolvedModel RecipeOptions::solve() const {
  RecipeRules rules;
  const Recipe whole = read(rules);
  check_names(whole, rules);
  const Recipe read_recipe = recipes_of_plans(whole).front();
  if (profile.empty()) return solve_model(read_recipe);
  const auto measured = std::make_shared<const Profile>(read_profile(profile));
  Backend backend;
  const Status kernels = board->open_backend("cpu", &backend);
  const std::string warning =
      kernels.ok() ? profile_mismatch(*measured, backend.kernel_set, usable_processors()) : kernels.message;
  if (!warning.empty()) warn(warning);
  return solve_model(read_recipe, costs_of(measured));
}

SolvedModel RecipeOptions::solve_for_card() const {
  Recipe of_card = recipes_of_plans(read()).front();
  of_card.backend = Recipe::BackendChoice::kCuda;
  return solve_model(of_card);
}

}  // namespace reprise
