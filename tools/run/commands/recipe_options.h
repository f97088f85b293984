// The options that plan, profile, fit, compare, audit, chain and name share: a recipe, and the
// options that override its values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/plan/planning/planner.h"
#include "tools/run/commands/command.h"

namespace reprise {

// The values of the options that override values of the recipe.
struct RecipeOptions {
  std::string recipe, strategy, profile, disk, host;
  std::optional<std::string> budget;
  int k = 0, ranks = 0;  // 0: as in the recipe
  std::string policy;
  // A model to plan instead of the recipe's, in a form that read_recipe_of_model() accepts; "": the
  // recipe's own model.
  std::string model;
  std::optional<Recipe::BackendChoice> backend = {};  // if set, replaces the recipe's backend
  bool small_core = false;      // true: plans for "core": "small", and for the CPU if the recipe has "auto"
  const Port* board = nullptr;  // the port of this machine; its kernels are compared with those of a profile

  void add_to(OptionParser& app);  // adds RECIPE and --budget
  void add_schedule_to(OptionParser& app);
  void add_profile_to(OptionParser& app, const Port& port);

  // Returns the name of the first option on the command line that changes the plan; "" if there is
  // none.
  std::string first_given() const;

  // Returns the files and folders that the options and the recipe name; an output must not be one
  // of them.
  std::vector<std::string> inputs() const;

  // Returns the recipe with the overrides, checked again. Sets `rules` so that later checks can
  // name the file, the field and the option in their messages. Throws UserError.
  Recipe read(RecipeRules& rules) const;
  Recipe read() const;
  // Checks data and weights before anything is planned. Throws UserError if existing data or
  // weights would end a training before its first step. Warns on stderr if the model's initial
  // weights do not exist.
  void look_first() const;
  // Performs the check of weights in look_first(), but not that of data. Returns the recipe.
  Recipe read_model_first() const;
  // Solves the links of the recipe's model. If the recipe has "budgets", uses the first budget.
  // Uses the costs of a profile if one is given, and warns if it was made on another machine.
  SolvedModel solve() const;
  // Solves the model for `"backend": "cuda"` with estimated costs, because profiles are for the
  // CPU. Ignores the recipe's own backend.
  SolvedModel solve_for_card() const;
};

// A message for a recipe without "core": "small" that is planned for a microcontroller.
constexpr const char* kSmallCoreWords =
    "planned with \"core\": \"small\", as for every microcontroller; write it into the recipe";

// Throws UserError if the weights from which a training of the recipe starts do not match its model
// in names, shapes and types. Missing weights are an error only if `must_be_there`.
void look_at_weights(const Recipe& recipe, const RecipeRules& rules, bool must_be_there);

}  // namespace reprise
