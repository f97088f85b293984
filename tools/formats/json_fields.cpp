// Reads the fields of one JSON object: presence, type, range, and a refusal that says what would be right.
// Here because a wrong recipe must cost its writer one look at one line.
#include "tools/formats/json_fields.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "tools/formats/error.h"
#include "tools/formats/json_text.h"
#include "tools/formats/text.h"

namespace reprise {
namespace {

using nlohmann::json;

std::string shown_number(double value) {
  const bool integer = value == std::floor(value) && std::fabs(value) < 1e15;
  return integer ? std::to_string(static_cast<int64_t>(value)) : json(value).dump();
}

std::string shown_range(const FieldRange& range) {
  if (std::isinf(range.high)) return (range.low_open ? "above " : "of at least ") + shown_number(range.low);
  return "from " + shown_number(range.low) + (range.low_open ? " (excluded)" : "") + " to " + shown_number(range.high) +
         (range.high_open ? " (excluded)" : "");
}

// A key as a message shows it: control characters escaped, quotes off.
std::string shown_key(const std::string& key) {
  const std::string text = json_shown(key);
  return text.size() >= 2 && text.back() == '"' ? text.substr(1, text.size() - 2) : text;
}

}  // namespace

JsonFields::JsonFields(const json& value, std::string file, std::string path)
    : object_(value), file_(std::move(file)), path_(std::move(path)) {
  if (value.is_object()) return;
  throw UserError(file_ + ": " + (path_.empty() ? "" : path_ + ": ") + "must be an object {...}, not " +
                  json_kind(value));
}

void JsonFields::refuse(const std::string& key, const std::string& reason) const {
  throw UserError(file_ + ": " + path_of(shown_key(key)) + ": " + reason);
}

void JsonFields::allow_only(const std::vector<std::string>& keys) const {
  for (const auto& [key, value] : object_.items()) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    const std::string near = closest_match(key, keys);
    refuse(key, "unknown key" + (near.empty() ? "" : "; did you mean \"" + near + "\"?") +
                    "; allowed here: " + quoted_list(keys));
  }
}

const json& JsonFields::at(const std::string& key) const {
  if (!has(key)) refuse(key, "missing");
  return object_[key];
}

const json& JsonFields::list_at(const std::string& key) const {
  const json& value = at(key);
  if (!value.is_array()) refuse(key, std::string("must be a list [...], not ") + json_kind(value));
  return value;
}

void JsonFields::read(const std::string& key, bool& target) const {
  if (!has(key)) return;
  if (!object_[key].is_boolean()) refuse(key, "must be true or false, not " + json_shown(object_[key]));
  target = object_[key].get<bool>();
}

void JsonFields::read(const std::string& key, std::string& target) const {
  if (!has(key)) return;
  if (!object_[key].is_string()) refuse(key, "must be a string, not " + json_shown(object_[key]));
  target = object_[key].get<std::string>();
  if (target.find('\0') != std::string::npos) refuse(key, "must not hold a NUL character");
}

void JsonFields::read(const std::string& key, std::vector<std::string>& target) const {
  if (!has(key)) return;
  target.clear();
  for (const json& word : list_at(key)) {
    if (!word.is_string()) refuse(key, "must be a list of strings, not of " + json_shown(word));
    target.push_back(word.get<std::string>());
  }
}

uint64_t JsonFields::integer_in(const std::string& key, const json& value, uint64_t low, uint64_t high) const {
  // Non-negative integers are unsigned to the parser; what lies beyond 64 bits is a float to it.
  if (value.is_number_unsigned()) {
    const uint64_t number = value.get<uint64_t>();
    if (number >= low && number <= high) return number;
  }
  refuse(key, "must be an integer from " + std::to_string(low) + " to " + std::to_string(high) + ", not " +
                  json_shown(value));
}

double JsonFields::number_in(const std::string& key, const json& value, const FieldRange& range) const {
  if (value.is_number()) {
    const double number = value.get<double>();
    const bool above = range.low_open ? number > range.low : number >= range.low;
    const bool below = range.high_open ? number < range.high : number <= range.high;
    if (above && below) return number;
  }
  refuse(key, "must be a number " + shown_range(range) + ", not " + json_shown(value));
}

void JsonFields::read(const std::string& key, int& target, int low, int high) const {
  if (!has(key)) return;
  target = static_cast<int>(integer_in(key, object_[key], static_cast<uint64_t>(low), static_cast<uint64_t>(high)));
}

void JsonFields::read(const std::string& key, uint64_t& target, uint64_t low, uint64_t high) const {
  if (has(key)) target = integer_in(key, object_[key], low, high);
}

void JsonFields::read(const std::string& key, double& target, const FieldRange& range) const {
  if (has(key)) target = number_in(key, object_[key], range);
}

void JsonFields::read(const std::string& key, std::optional<double>& target, const FieldRange& range) const {
  if (has_value(key)) target = number_in(key, object_[key], range);
}

void JsonFields::read(const std::string& key, std::vector<int>& target, int low, int high) const {
  if (!has(key)) return;
  target.clear();
  for (const json& value : list_at(key)) {
    target.push_back(static_cast<int>(integer_in(key, value, static_cast<uint64_t>(low), static_cast<uint64_t>(high))));
  }
}

void JsonFields::read_path(const std::string& key, const std::string& folder, std::string& target) const {
  namespace fs = std::filesystem;
  std::string path;
  read(key, path);
  if (!has(key)) return;
  if (path.empty()) refuse(key, "must be a path, not \"\"");
  target = fs::absolute(fs::path(folder.empty() ? "." : folder) / path).lexically_normal().string();
}

void JsonFields::read_bytes(const std::string& key, std::optional<uint64_t>& target, uint64_t least) const {
  if (!has_value(key)) return;
  const json& value = object_[key];
  if (value.is_string()) {
    target = parse_bytes(value.get<std::string>(), file_ + ": " + path_of(key));
  } else if (value.is_number()) {
    target = integer_in(key, value, least, uint64_t{std::numeric_limits<int64_t>::max()});
  } else {
    refuse(key, "must be bytes, an integer or a text as \"512MiB\", not " + json_shown(value));
  }
}

void JsonFields::require_one_of(const std::string& key, const std::vector<std::string>& words) const {
  if (!has(key)) refuse(key, "missing; give " + either_of(words));
  require_choice(key, words);
}

void JsonFields::require_choice(const std::string& key, const std::vector<std::string>& words) const {
  const json& value = object_[key];
  if (value.is_string() && std::find(words.begin(), words.end(), value.get<std::string>()) != words.end()) return;
  const std::string near = value.is_string() ? closest_match(value.get<std::string>(), words) : "";
  refuse(key, "must be one of " + quoted_list(words) + ", not " + json_shown(value) +
                  (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
}

}  // namespace reprise
