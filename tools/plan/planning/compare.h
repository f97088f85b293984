// Compares all strategies for one recipe, so that a user sees the memory and the cost of each
// strategy on their own net. All strategies get the same chain and the same memory.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tools/plan/planning/planner.h"

namespace reprise {

// Returns
//   {"budget", "rows": [{"strategy", "feasible", "peak_bytes", "packed_bytes",
//                        "extra_forward_cost", "predicted_seconds", "smallest_budget"}]}
// Bytes are those of the whole arena; extra_forward_cost is a fraction of a step's forward and
// backward. "reason" is set if the strategy cannot be tried, for example without a parameter that
// the recipe does not give. "smallest_budget" is set in infeasible rows: the minimum at which the
// strategy has a plan, null if unknown. A strategy that may use a disk has "disk_bytes" and
// "disk_budget_bytes". disk_budget_bytes is the size of the recipe's disk. If the recipe names no
// disk ("disk_is_assumed" is true), it is the number of bytes that storing everything takes. If the
// second level is memory of the host, these keys begin with "host" instead of "disk". A policy has
// a row whose strategy is "policy", with the policy's text as "policy".
nlohmann::json compare_strategies(const SolvedModel& model);

// Compares strategies on a chain alone, without policies and without a disk. Bytes are the chain's,
// its input included. The default budget is the peak of "none".
nlohmann::json compare_strategies(const Chain& chain, std::optional<uint64_t> budget_bytes);

// Compares strategies on a model at `points` budgets, from the smallest of "optimal" to that of
// storing everything. Returns {"store_all_bytes", "fronts": [{"strategy", "points": [{"budget",
// ...}]}]}; a policy's front has its "policy".
nlohmann::json sweep_strategies(const SolvedModel& model, int points = 20);

enum class ComparedKind : uint8_t { kRecipe, kChain };
std::string comparison_text(const nlohmann::json& comparison, ComparedKind kind = ComparedKind::kRecipe);

}  // namespace reprise
