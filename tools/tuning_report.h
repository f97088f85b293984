// What this machine's kernels were tuned to, for a person and for a program: `tune` and `doctor` print it.
// Here so that both say the same.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lib/port.h"

namespace reprise {

// {"measured", "file", "problem", "workers", "numbers": {NAME: NUMBER}}; file and problem are null where there is none.
nlohmann::json tuning_json(const Tuning& tuning, uint32_t workers);
// Whether they were measured, and the numbers.
std::string tuning_text(const nlohmann::json& tuning);

}  // namespace reprise
