// Where two values of JSON differ, for messages about what has changed.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace reprise {

// A place where two values differ; lists are one place. A value that one of them lacks is null.
struct JsonDifference {
  std::string path;  // dotted
  nlohmann::json before, now;
  std::string shown() const;  // `alpha: 16, now 99`
};
std::vector<JsonDifference> find_differences(const nlohmann::json& before, const nlohmann::json& now);
std::string differences_shown(const std::vector<JsonDifference>& differences);  // `alpha: 16, now 99; r: 4, now 8`

}  // namespace reprise
