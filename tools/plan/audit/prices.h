// The price of memory: how the cost changes if a plan has a little less or a little more memory. It
// is found by planning again, because an estimate from one plan would be wrong.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tools/plan/planning/planner.h"

namespace reprise {

// Returns {"unit", "step", "budget", "by_bytes": [{"bytes", "less", "more"}]} (tools/COMMANDS.md)
// for a plan that fits. `less` is the additional cost of the best plan whose budget is smaller by
// `bytes`; null if there is none. `more` is the saving of the best plan whose budget is larger by
// `bytes`. There is an entry for the size of each slot in a training step, and for 1 MiB.
nlohmann::json memory_prices(const SolvedModel& model, const PlannedModel& planned);

// Returns the manifests of at most `count` plans. Their budgets range from the smallest that fits
// to the one at which everything is stored.
std::vector<nlohmann::json> sweep_manifests(const SolvedModel& model, int count);

// Returns {"budget", "why"}: the largest budget that does not fit, and the reason. Returns null if
// no such budget is known.
nlohmann::json largest_misfit(const SolvedModel& model);

}  // namespace reprise
