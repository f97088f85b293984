// The difference between two manifests: what appeared, vanished, grew or moved, and how the peak
// and the time changed.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace reprise {

// Compares two manifests that have passed check_manifest(). Returns {"a", "b", "regions", "slots",
// "peak"} (tools/COMMANDS.md). Slots are matched by program and name.
nlohmann::json plan_diff(const nlohmann::json& a, const nlohmann::json& b);

// Returns the result of plan_diff() as text.
std::string plan_diff_text(const nlohmann::json& diff);

}  // namespace reprise
