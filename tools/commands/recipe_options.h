// What plan, profile, fit, compare, audit, chain and name share: a recipe, and what the command line overrides in it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/commands/command.h"
#include "tools/planning/planner.h"

namespace reprise {

struct RecipeOptions {
  std::string recipe, strategy, profile, disk, host;
  std::optional<std::string> budget;
  int k = 0, ranks = 0;  // 0: the recipe's
  std::string policy;
  std::string model;            // planned in place of the recipe's own, as read_recipe_of_model() takes it; "": none
  const Port* board = nullptr;  // whose kernels a profile is compared with

  void add_to(OptionParser& app);  // the recipe and --budget
  void add_schedule_to(OptionParser& app);
  void add_profile_to(OptionParser& app, const Port& port);

  // The name of an option that changes the plan, of those that are given; "" where there is none.
  std::string first_given() const;

  // Returns the files and folders that the options and the recipe name, none of which may be an output.
  std::vector<std::string> inputs() const;

  // The recipe with its overrides, checked again. Throws UserError; `rules` get what refuses what is found wrong later.
  Recipe read(RecipeRules& rules) const;
  Recipe read() const;
  // Before anything is planned: throws UserError where data or weights that are there would end a training before its first step, and warns
  // on stderr of a model without the weights that it would start from.
  void look_first() const;
  Recipe read_model_first() const;  // the same without the data
  // Its model with its links solved, of its first plan where it has "budgets"; with a profile's costs where one is given, and a warning where it
  // is of another machine.
  SolvedModel solve() const;
  // The same for `"backend": "cuda"`, whatever the recipe says, with estimated costs: a profile is of the CPU.
  SolvedModel solve_for_card() const;
};

// Throws UserError where the weights that a training of the recipe starts from are not those of its model, by names, shapes and types.
// Weights that are not there are refused only where they must be.
void look_at_weights(const Recipe& recipe, const RecipeRules& rules, bool must_be_there);

}  // namespace reprise
