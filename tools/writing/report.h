// What a person or a script is told about a plan: the manifest, the summary, the audit.
// Here so that every number in a report comes from the plan itself.
#pragma once

#include <nlohmann/json.hpp>

#include "tools/planning/planner.h"

namespace reprise {

// Canonical: sorted keys, no times (tools/FORMATS.md).
nlohmann::json manifest_of(const SolvedModel& model, const PlannedModel& planned);

// A few lines: budget, planned peak, what storing everything would need, extra forward work.
std::string summary_of(const SolvedModel& model, const PlannedModel& planned);

// A manifest as text for a person: regions, the peak row with its live set, the largest slots.
std::string audit_text(const nlohmann::json& manifest);

}  // namespace reprise
