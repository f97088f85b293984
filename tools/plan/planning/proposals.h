// Finds changes by which a recipe needs less memory, and the bytes that each leaves: a smaller
// batch, less state, weights in fewer bits. Each change is planned, because the plan that a user
// then gets might need more than an estimate.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/plan/planning/planner.h"

namespace reprise {

struct Proposal {
  nlohmann::json change;           // the recipe's keys with their new values
  std::string words;               // the change as text: "\"batch\": 1"
  uint64_t smallest_budget_bytes;  // smallest budget of the changed recipe, from its plan
  bool fits;
};

// True if the changed model, whose smallest budget is `smallest_budget_bytes`, fits.
using FitsJudge = std::function<bool(const SolvedModel& model, uint64_t smallest_budget_bytes)>;

// True if the model fits the recipe's own budget, of either kind.
bool fits_own_budget(const SolvedModel& model, uint64_t smallest_budget_bytes);

// Returns each single change that lowers the model's `smallest_budget_bytes`, in a fixed order that
// begins with the changes that affect training least. If there are several and none fits, one more
// proposal combines them: as many as are needed, or all if even these do not fit. Each proposal is
// planned.
std::vector<Proposal> proposals_for(const SolvedModel& model, uint64_t smallest_budget_bytes, const FitsJudge& fits);

// Returns text to append to an error: "; with "gradient_release": true it would be 1.70 MiB, with
// "batch": 1 1.20 MiB (fits)"; "" if there are no proposals.
std::string proposals_text(const std::vector<Proposal>& proposals);
nlohmann::json proposals_json(const std::vector<Proposal>& proposals);  // [{"change", "smallest_budget", "fits"}]

}  // namespace reprise
