// Shows the tuning of this machine's kernels as JSON and as text, for `tune` and `doctor`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lib/port.h"

namespace reprise {

// Returns {"measured", "file", "problem", "workers", "numbers": {NAME: NUMBER}}. "file" and
// "problem" are null if there is none.
nlohmann::json tuning_json(const Tuning& tuning, uint32_t workers);
// Returns a text that states whether the numbers were measured, and the numbers.
std::string tuning_text(const nlohmann::json& tuning);

}  // namespace reprise
