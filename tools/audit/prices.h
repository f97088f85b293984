// What memory is worth: the plans for a little less and a little more of it.
// Here because only planning again can tell; a price that is guessed from one plan is none.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tools/planning/planner.h"

namespace reprise {

// Of a plan that fits: {"unit", "step", "budget", "by_bytes": [{"bytes", "less", "more"}]} (tools/FORMATS.md). `less` is what the best plan of a budget that
// is smaller by so many bytes costs more, null where there is none; `more` what that of a larger one saves. Bytes are those of every size
// of slot that a training step has, and a MiB.
nlohmann::json memory_prices(const SolvedModel& model, const PlannedModel& planned);

// Manifests of at most `count` plans, at budgets from the smallest to what storing everything takes.
std::vector<nlohmann::json> sweep_manifests(const SolvedModel& model, int count);

// {"budget", "why"}: the largest budget that does not fit, and what is in the way; null where none is known.
nlohmann::json largest_misfit(const SolvedModel& model);

}  // namespace reprise
