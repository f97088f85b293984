// Two manifests side by side: what appeared, vanished, grew, moved, and what that did to peak and time.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace reprise {

// Of two manifests that check_manifest has passed: {"a", "b", "regions", "slots", "peak"} (tools/FORMATS.md). Slots are matched by program and name.
nlohmann::json plan_diff(const nlohmann::json& a, const nlohmann::json& b);

std::string plan_diff_text(const nlohmann::json& diff);

}  // namespace reprise
