// Predicts a step of one recipe on several boards, which need not exist yet, from the plan, the
// kernels' times and the measured wire. The result shows how much another board would gain.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tools/plan/planning/planner.h"

namespace reprise {

// Returns
//   {"wire": {"ranks", "message_seconds", "byte_seconds"},
//    "rows": [{"ranks", "order", "feasible", "planned_bytes", "sent_bytes", "received_bytes",
//              "wire_seconds", "waited_seconds", "step_seconds", "samples_per_second",
//              "efficiency"}]}
// Each number of ranks gets a plan at the recipe's budget, which is simulated as in wire_time.h.
// Figures are per rank and step, except that samples_per_second counts all ranks. `efficiency` is
// the ratio of samples_per_second to that of one rank times the number of ranks. The figures of a
// row that does not fit are null. Throws UserError if the model has no measured wire.
nlohmann::json compare_ranks(const SolvedModel& model, const std::vector<uint32_t>& ranks);

std::string ranks_text(const nlohmann::json& comparison);

}  // namespace reprise
