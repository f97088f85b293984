// Every strategy side by side for one recipe.
// Here so that a person can see what a schedule is worth on their own net.
// It must not favour one: all get the same chain and the same memory.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tools/planning/planner.h"

namespace reprise {

// {"budget", "rows": [{"strategy", "feasible", "peak_bytes", "packed_bytes", "extra_forward_cost", "predicted_seconds"}]}. Bytes are
// those of the whole arena; extra_forward_cost is a share of a step's forward and backward. A strategy that needs a parameter
// the recipe does not give carries "reason". One that may use a disk carries "disk_bytes" and the "disk_budget_bytes" it was given: the
// recipe's, or where that names none ("disk_is_assumed" is true) as much as storing everything takes. Policies are rows of strategy
// "policy" with their "policy".
nlohmann::json compare_strategies(const SolvedModel& model);

// The same at `points` budgets from the smallest that any strategy meets to what storing everything takes: {"store_all_bytes",
// "fronts": [{"strategy", "points": [{"budget", ...}]}]}; a policy's front has its "policy".
nlohmann::json sweep_strategies(const SolvedModel& model, int points = 20);

std::string comparison_text(const nlohmann::json& comparison);

}  // namespace reprise
