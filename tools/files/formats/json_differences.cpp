// Compares objects key by key, and everything else as a whole.
#include "tools/files/formats/json_differences.h"

#include <utility>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/text.h"

namespace reprise {

using nlohmann::json;

std::string JsonDifference::shown() const {
  return path + (path.empty() ? "" : ": ") + json_shown(before) + ", now " + json_shown(now);
}

std::vector<JsonDifference> find_differences(const json& before, const json& now) {
  const auto find = [](const json& object, const std::string& key) {
    return object.contains(key) ? object.at(key) : json();
  };
  if (before == now) return {};
  if (!before.is_object() || !now.is_object()) return {{"", before, now}};
  std::vector<JsonDifference> all;
  json keys = before;
  keys.update(now);
  for (const auto& [key, unused] : keys.items()) {
    for (JsonDifference& inner : find_differences(find(before, key), find(now, key))) {
      inner.path = shown_key(key) + (inner.path.empty() ? "" : "." + inner.path);
      all.push_back(std::move(inner));
    }
  }
  return all;
}

std::string differences_shown(const std::vector<JsonDifference>& differences) {
  std::vector<std::string> all;
  for (const JsonDifference& difference : differences) all.push_back(difference.shown());
  return some_of(all, "; ", kSentence);
}

}  // namespace reprise
