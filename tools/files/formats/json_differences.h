// Differences of two JSON values, for messages about what has changed.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace reprise {

// One difference between two values. Lists are compared as a whole. A value that is missing on one
// side is null.
struct JsonDifference {
  std::string path;  // dotted path
  nlohmann::json before, now;
  std::string shown() const;  // returns for example: `alpha: 16, now 99`
};
// Returns all differences between two values.
std::vector<JsonDifference> find_differences(const nlohmann::json& before, const nlohmann::json& now);
// Returns for example: `alpha: 16, now 99; r: 4, now 8`
std::string differences_shown(const std::vector<JsonDifference>& differences);

}  // namespace reprise
