// Reads the fields of one JSON object: checks presence, type and range, and reports what would be
// correct.
#include "tools/files/formats/json_fields.h"

#include <algorithm>
#include <filesystem>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/text.h"

namespace reprise {

using nlohmann::json;

JsonFields::JsonFields(const json& value, JsonOrigin origin, std::string path)
    : object_(value), origin_(std::move(origin)), path_(std::move(path)) {
  if (value.is_object()) return;
  throw UserError(origin_.file + ": " + (path_.empty() ? "" : path_ + ": ") + "must be an object {...}, not " +
                  json_kind(value) + place(path_));
}

void JsonFields::refuse(const std::string& key, const std::string& reason, const json* value) const {
  std::string path = path_of(key);
  if (value != nullptr && has(key) && object_[key].is_array()) {
    for (size_t n = 0; n < object_[key].size(); ++n) {
      if (&object_[key][n] == value) path += "[" + std::to_string(n) + "]";
    }
  }
  throw UserError(origin_.file + ": " + path_of(shown_key(key)) + ": " + reason + place(path));
}

void JsonFields::allow_only(const std::vector<std::string>& keys) const {
  if (origin_.notes != nullptr) origin_.notes->allowed[path_] = keys;
  for (const auto& [key, value] : object_.items()) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    const std::string near = closest_match(key, keys);
    refuse(key, "unknown key" + (near.empty() ? "" : "; did you mean \"" + near + "\"?") +
                    "; allowed here: " + quoted_list(keys));
  }
}

void JsonFields::require(const std::string& key, const std::string& hint) const {
  if (origin_.notes != nullptr) origin_.notes->required.insert(path_of(key));
  if (!has(key)) refuse(key, "missing; " + hint);
}

const json& JsonFields::at(const std::string& key) const {
  if (!has(key)) refuse(key, "missing");
  return object_[key];
}

JsonFields JsonFields::object(const std::string& key, const KeyText& text) const {
  note(key, object_form, [] { return json(); }, text);
  return {at(key), origin_, path_of(key)};
}

JsonFields JsonFields::element(const std::string& list, size_t n) const {
  JsonOrigin origin = origin_;
  origin.notes = nullptr;  // the format's documentation has an entry for the list, but none for its elements
  return {list_at(list).at(n), origin, path_of(list) + "[" + std::to_string(n) + "]"};
}

const json& JsonFields::list_at(const std::string& key) const {
  const json& value = at(key);
  if (!value.is_array()) refuse(key, std::string("must be a list [...], not ") + json_kind(value));
  return value;
}

void JsonFields::read(const std::string& key, bool& target, const KeyText& text) const {
  note_read(key, bool_form, target, text);
  if (!has(key)) return;
  if (!object_[key].is_boolean()) refuse(key, "must be " + bool_form().words + ", not " + json_shown(object_[key]));
  target = object_[key].get<bool>();
}

void JsonFields::read(const std::string& key, std::string& target, const KeyText& text) const {
  note_read(key, [&] { return text.words.empty() ? string_form() : word_form(text.words); }, target, text);
  if (!has(key)) return;
  if (!object_[key].is_string()) refuse(key, "must be " + string_form().words + ", not " + json_shown(object_[key]));
  target = object_[key].get<std::string>();
  if (target.find('\0') != std::string::npos) refuse(key, "must not hold a NUL character");
}

void JsonFields::read(const std::string& key, std::vector<std::string>& target, const KeyText& text) const {
  note_read(key, [] { return list_form(string_form()); }, target, text);
  if (!has(key)) return;
  target.clear();
  for (const json& word : list_at(key)) {
    if (!word.is_string()) refuse(key, "must be a list of strings, not of " + json_shown(word), &word);
    target.push_back(word.get<std::string>());
    if (target.back().find('\0') != std::string::npos) refuse(key, "must not hold a NUL character", &word);
  }
}

uint64_t JsonFields::integer_in(const std::string& key, const json& value, uint64_t low, uint64_t high) const {
  // The parser reads integers beyond 64 bits as floats, so that they are refused here.
  if (value.is_number_unsigned() || (value.is_number_integer() && value.get<int64_t>() >= 0)) {
    const uint64_t number = value.get<uint64_t>();
    if (number >= low && number <= high) return number;
  }
  refuse(key, "must be " + integer_form(low, high).words + ", not " + json_shown(value), &value);
}

double JsonFields::number_in(const std::string& key, const json& value, const FieldRange& range) const {
  if (value.is_number()) {
    const double number = value.get<double>();
    const bool above = range.low_open ? number > range.low : number >= range.low;
    const bool below = range.high_open ? number < range.high : number <= range.high;
    if (above && below) return number;
  }
  refuse(key, "must be " + number_form(range).words + ", not " + json_shown(value), &value);
}

void JsonFields::read(const std::string& key, int& target, int low, int high, const KeyText& text) const {
  note_read(key, [&] { return integer_form(low, high); }, target, text);
  if (!has(key)) return;
  target = static_cast<int>(integer_in(key, object_[key], static_cast<uint64_t>(low), static_cast<uint64_t>(high)));
}

void JsonFields::read(const std::string& key, uint64_t& target, uint64_t low, uint64_t high,
                      const KeyText& text) const {
  note_read(key, [&] { return integer_form(low, high); }, target, text);
  if (has(key)) target = integer_in(key, object_[key], low, high);
}

void JsonFields::read(const std::string& key, double& target, const FieldRange& range, const KeyText& text) const {
  note_read(key, [&] { return number_form(range); }, target, text);
  if (has(key)) target = number_in(key, object_[key], range);
}

void JsonFields::read(const std::string& key, std::optional<int>& target, int low, int high,
                      const KeyText& text) const {
  note(
      key, [&] { return optional_form(integer_form(low, high)); }, [&] { return target ? json(*target) : json(); },
      text);
  if (!has_value(key)) return;
  target = static_cast<int>(integer_in(key, object_[key], static_cast<uint64_t>(low), static_cast<uint64_t>(high)));
}

void JsonFields::read(const std::string& key, std::optional<uint64_t>& target, uint64_t low, uint64_t high,
                      const KeyText& text) const {
  note(
      key, [&] { return optional_form(integer_form(low, high)); }, [&] { return target ? json(*target) : json(); },
      text);
  if (has_value(key)) target = integer_in(key, object_[key], low, high);
}

void JsonFields::read(const std::string& key, std::optional<double>& target, const FieldRange& range,
                      const KeyText& text) const {
  note(key, [&] { return optional_form(number_form(range)); }, [&] { return target ? json(*target) : json(); }, text);
  if (has_value(key)) target = number_in(key, object_[key], range);
}

void JsonFields::read(const std::string& key, std::vector<int>& target, int low, int high, const KeyText& text) const {
  note_read(key, [&] { return list_form(integer_form(low, high)); }, target, text);
  if (!has(key)) return;
  target.clear();
  for (const json& value : list_at(key)) {
    target.push_back(static_cast<int>(integer_in(key, value, static_cast<uint64_t>(low), static_cast<uint64_t>(high))));
  }
}

void JsonFields::read(const std::string& key, std::vector<uint64_t>& target, uint64_t low, uint64_t high,
                      const KeyText& text) const {
  note_read(key, [&] { return list_form(integer_form(low, high)); }, target, text);
  if (!has(key)) return;
  target.clear();
  for (const json& value : list_at(key)) target.push_back(integer_in(key, value, low, high));
}

void JsonFields::read(const std::string& key, std::vector<double>& target, const FieldRange& range,
                      const KeyText& text) const {
  note_read(key, [&] { return list_form(number_form(range)); }, target, text);
  if (!has(key)) return;
  target.clear();
  for (const json& value : list_at(key)) target.push_back(number_in(key, value, range));
}

void JsonFields::read_path(const std::string& key, const std::string& folder, std::string& target,
                           const KeyText& text) const {
  namespace fs = std::filesystem;
  note_read(key, path_form, target, text);
  std::string path;
  read(key, path);
  if (!has(key)) return;
  if (path.empty()) refuse(key, "must be " + path_form().words + ", not \"\"");
  target = fs::absolute(fs::path(folder.empty() ? "." : folder) / path).lexically_normal().string();
}

void JsonFields::read_bytes(const std::string& key, std::optional<uint64_t>& target, uint64_t minimum,
                            const KeyText& text) const {
  note(key, [&] { return optional_form(bytes_form(minimum)); }, [&] { return target ? json(*target) : json(); }, text);
  if (has_value(key)) target = bytes_in(key, object_[key], minimum);
}

void JsonFields::read_bytes(const std::string& key, std::vector<uint64_t>& target, uint64_t minimum,
                            const KeyText& text) const {
  note_read(key, [&] { return list_form(bytes_form(minimum)); }, target, text);
  if (!has(key)) return;
  target.clear();
  for (const json& value : list_at(key)) target.push_back(bytes_in(key, value, minimum));
}

uint64_t JsonFields::bytes_in(const std::string& key, const json& value, uint64_t minimum) const {
  if (value.is_number()) return integer_in(key, value, minimum, uint64_t{std::numeric_limits<int64_t>::max()});
  if (!value.is_string()) refuse(key, "must be " + bytes_form(minimum).words + ", not " + json_shown(value));
  try {
    return parse_bytes(value.get<std::string>(), origin_.file + ": " + path_of(key));
  } catch (const UserError& error) {
    throw UserError(error.what() + place(path_of(key)));
  }
}

void JsonFields::require_one_of(const std::string& key, const std::vector<std::string>& words,
                                const KeyText& text) const {
  note(key, [&] { return word_form(words); }, [] { return json(); }, text);
  require(key, "give " + either_of(words));
  require_choice(key, words);
}

void JsonFields::require_choice(const std::string& key, const std::vector<std::string>& words) const {
  const json& value = object_[key];
  if (value.is_string() && std::find(words.begin(), words.end(), value.get<std::string>()) != words.end()) return;
  const std::string near = value.is_string() ? closest_match(value.get<std::string>(), words) : "";
  refuse(key, "must be " + word_form(words).words + ", not " + json_shown(value) +
                  (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
}

}  // namespace reprise
