// `reprise fit`: does the recipe fit a budget, and which is the smallest that it fits?
#include <algorithm>
#include <iostream>
#include <memory>

#include "tools/commands/recipe_options.h"
#include "tools/formats/error.h"
#include "tools/formats/text.h"
#include "tools/planning/fit_table.h"
#include "tools/writing/summary.h"

namespace reprise {

namespace {

int run_table(const RecipeOptions& options, bool as_json) {
  const Recipe recipe = options.read();
  if (!recipe.budget_bytes) throw UserError(options.recipe + ": budget: --table needs one; give --budget B, or \"budget\" in the recipe");
  std::optional<SolvedModel> profiled;
  if (!options.profile.empty()) profiled = options.solve();
  const nlohmann::json table = fit_table(recipe, profiled ? &*profiled : nullptr);
  if (as_json) {
    print_json(table);
  } else {
    std::cout << fit_table_text(table);
  }
  const auto fits = [](const nlohmann::json& row) { return row.at("fits").get<bool>(); };
  return std::any_of(table.at("table").begin(), table.at("table").end(), fits) ? 0 : int{UserError::kDoesNotFit};
}

int run_fit(const RecipeOptions& options, bool as_json) {
  const SolvedModel model = options.solve();
  if (!model.recipe.budget_bytes && !model.recipe.feature_map_budget_bytes) {
    throw UserError(options.recipe + ": budget: fit needs one; give --budget B, or \"budget\" in the recipe");
  }
  const ScheduleRequest request = request_of(model);
  PlannedModel planned = plan_model(model, request);
  if (planned.fits) planned.smallest_budget_bytes = smallest_budget(model, request);
  nlohmann::json answer = {{"fits", planned.fits}};
  answer["predicted_seconds"] = planned.fits && planned.predicted_seconds ? nlohmann::json(*planned.predicted_seconds) : nlohmann::json(nullptr);
  answer["smallest_budget"] = planned.smallest_budget_bytes == 0 ? nlohmann::json(nullptr) : nlohmann::json(planned.smallest_budget_bytes);
  answer["planned_bytes"] = planned.fits ? nlohmann::json(planned.plan.arena_bytes) : nlohmann::json(nullptr);
  if (as_json) print_json(answer);
  if (!planned.fits) {
    std::cerr << does_not_fit_message(model, planned, request) << "\n";
    return UserError::kDoesNotFit;
  }
  if (!as_json) std::cout << summary_of(model, planned) << "\n  smallest budget " << bytes_text(planned.smallest_budget_bytes) << "\n";
  return 0;
}

}  // namespace

Command add_fit(CLI::App& app, const Port& port) {
  struct FitOptions {
    RecipeOptions recipe;
    bool json = false, table = false;
  };
  const auto options = std::make_shared<FitOptions>();
  CLI::App* parser = app.add_subcommand("fit", "does the recipe fit a budget? exit status 0 or 3, the smallest budget that does");
  options->recipe.add_to(*parser);
  options->recipe.add_schedule_to(*parser);
  options->recipe.add_profile_to(*parser, port);
  parser->add_flag("--table", options->table, "which batches and sequences fit, what they cost, and how to accumulate the others");
  parser->add_flag("--json", options->json, "one JSON value on stdout");
  return {parser, [options] { return options->table ? run_table(options->recipe, options->json) : run_fit(options->recipe, options->json); }};
}

}  // namespace reprise
