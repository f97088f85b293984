// The sizes of a micro-batch that fit a budget, and the cost of each: `reprise fit --table`. A user
// chooses batch and sequence together, and the plan of one size does not show what a smaller size
// would gain.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/plan/costs/step_times.h"

namespace reprise {

// Returns a table of plans within the recipe's budget: at a quarter, half, once and twice the
// recipe's sequence (images: as they are), and at batches of 1, 2, 4, ... up to twice the recipe's
// batch, at least 8.
//   {"budget", "seconds_rest_on",
//    "table": [{"batch", "sequence", "fits", "planned_bytes", "extra_forward_cost",
//               "predicted_seconds", "work", "seconds", "smallest_budget"}],
//    "proposals": [{"batch", "sequence", "micro_batch", "accumulate", "planned_bytes",
//                   "extra_forward_cost", "predicted_seconds", "work", "seconds"}]}
// "proposals" has an entry for a batch that does not fit: the largest micro-batch that fits and
// divides the batch, accumulated to the same step. `predicted_seconds` are those of `times` if it
// is profiled, else null. `seconds` are always set, and `seconds_rest_on` names their source.
// `smallest_budget` is set for a plan that does not fit, else null. `work` is the work of a step,
// with the step that stores everything as the unit: 2 takes about twice as long. If nothing fits,
// there is also
//   "smallest": {"batch", "sequence", "budget"}
// with the minimum budget of the table's smallest entry, null if unknown.
nlohmann::json fit_table(const Recipe& recipe, const StepTimes& times);

// Returns the table as text.
std::string fit_table_text(const nlohmann::json& table);

// Returns one line: that nothing in the table fits and, if known, the minimum budget that would.
// The table must have "smallest".
std::string nothing_fits_message(const Recipe& recipe, const nlohmann::json& table);

}  // namespace reprise
