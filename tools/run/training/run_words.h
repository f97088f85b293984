// Texts that a run prints about itself: passes over its data, duration, and the next command.
#pragma once

#include <string>
#include <vector>

#include "lib/plan.h"
#include "tools/plan/recipes/recipe.h"
#include "tools/run/session/program_options.h"

namespace reprise {

// Returns "29 passes", "1 pass" or "0.5 passes"; two significant digits below ten.
std::string passes_text(double passes);

// Returns for example "12.3 s", "1 min 39 s" or "2 h 5 min".
std::string duration_text(double seconds);

// Returns a command that uses the trained weights, from the snapshot or else from the adapter.
// Returns "" if nothing is saved, or if the program cannot use the weights. `evaluates` states
// whether the recipe has evaluation data.
std::string next_command(const ProgramOptions& options, const Recipe& recipe, const Plan& plan,
                         const std::string& adapter, bool evaluates);

// Returns this run's own command with --continue; "" if the run saves nothing.
std::string continuing_command(const ProgramOptions& options);

}  // namespace reprise
