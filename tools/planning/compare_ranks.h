// A step of one recipe on more and more boards, before there is a second one.
// Here because whether another board pays follows from the plan, from what kernels take and from the wire, and all three are known.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tools/planning/planner.h"

namespace reprise {

// {"wire": {"ranks", "message_seconds", "byte_seconds"}, "rows": [{"ranks", "order", "feasible", "planned_bytes", "sent_bytes", "received_bytes",
// "wire_seconds", "waited_seconds", "step_seconds", "samples_per_second", "efficiency"}]}: a plan is made for each number of ranks, at the recipe's
// budget, and walked as wire_time.h says. What is per rank and step is so in all of them; samples are those of all ranks, and `efficiency` is their
// share of as many as so many single ranks would have. Figures of a row that does not fit are null. Throws UserError where the model has no measured wire.
nlohmann::json compare_ranks(const SolvedModel& model, const std::vector<uint32_t>& ranks);

std::string ranks_text(const nlohmann::json& comparison);

}  // namespace reprise
