// Which sizes of a micro-batch fit a budget, and what each costs: `reprise fit --table`.
// Here because a person chooses batch and sequence together, and one answer at a time hides what a little less of one would buy.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/planning/planner.h"

namespace reprise {

// The recipe at a quarter, half, once and twice its sequence (of images: as it is), and at batches of 1, 2, 4, ... to twice its own, 8 at
// least; each planned within the recipe's budget. Where a batch does not fit, the largest micro-batch that does and divides it takes its
// place, accumulated to the same step. Seconds are those of `profiled`, a model of the recipe itself with measured costs, scaled by the
// work that is estimated for either; null without it.
//   {"budget", "table": [{"batch", "sequence", "fits", "planned_bytes", "extra_forward_cost", "predicted_seconds", "work"}],
//    "proposals": [{"batch", "sequence", "micro_batch", "accumulate", "planned_bytes", "extra_forward_cost", "predicted_seconds", "work"}]}
// `work` is of a step, in steps of the recipe that stores everything: 2 takes about twice as long. Where nothing fits, there is also
//    "smallest": {"batch", "sequence", "budget"}
// the least budget that any of the table fits, null where it is not known.
nlohmann::json fit_table(const Recipe& recipe, const SolvedModel* profiled);

// The same for people.
std::string fit_table_text(const nlohmann::json& table);

// One line, of a table with "smallest".
std::string nothing_fits_message(const Recipe& recipe, const nlohmann::json& table);

}  // namespace reprise
