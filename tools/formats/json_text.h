// JSON text to a value, and the small helpers that every format in JSON needs for a clear refusal.
// The parser's own errors span lines and keep the last of two equal keys; both would mislead whoever mistyped.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace reprise {

// Throws UserError "FILE: line L, column C: ..." for bad JSON, bad UTF-8 or a key given twice in one object.
nlohmann::json parse_json(const std::string& text, const std::string& file);

// A value as a message shows it: JSON on one line, cut where it is long.
std::string json_shown(const nlohmann::json& value);

// "a string", "an integer" ...: what a value is, for "must be ..., not ...".
const char* json_kind(const nlohmann::json& value);

// The candidate that a slip of the finger would turn into `word`; empty where none is near.
std::string closest_match(const std::string& word, const std::vector<std::string>& candidates);

// `"a", "b", "c"`
std::string quoted_list(const std::vector<std::string>& words);

// `"a", "b" or "c"`
std::string either_of(const std::vector<std::string>& words);

}  // namespace reprise
