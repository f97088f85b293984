// JSON text to a value, and the small helpers that every format in JSON needs for a clear refusal.
// The parser's own errors span lines and keep the last of two equal keys; both would mislead whoever mistyped.
#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace reprise {

// Whether "// ..." and "/* ... */" may stand where white space may: in what people write, not in what programs exchange.
enum class JsonComments { kRefused, kAllowed };

// The most that is read as JSON, so that a text from a stranger takes about a GiB of memory at worst.
constexpr size_t kMostJsonBytes = size_t{256} << 20, kMostJsonValues = 5'000'000;

// Throws UserError "FILE: ... (line L, column C)" for bad JSON, bad UTF-8 or a key given twice in one object, and "FILE: ..." for a text
// that is larger than the above or nested more than 100 deep.
nlohmann::json parse_json(const std::string& text, const std::string& file, JsonComments comments = JsonComments::kRefused);

// Returns what parse_json returns, or a discarded value (is_discarded) where it throws: for who asks whether a file is of some kind.
nlohmann::json json_or_discarded(const std::string& text, JsonComments comments = JsonComments::kRefused);

// Returns what parse_json returns, with the keys of each object in the order of the text.
nlohmann::ordered_json parse_ordered_json(const std::string& text, const std::string& file, JsonComments comments = JsonComments::kRefused);

// Calls visit(key, value) for the members of the text's outermost object one by one, in their order, so that they are never in memory
// together. Throws UserError as parse_json does; members before the fault have then been visited.
void visit_json_members(const std::string& text, const std::string& file, const std::function<void(const std::string&, nlohmann::json&&)>& visit);

// " (line L, column C)", where the value of that path begins in a text that parse_json takes: "optimizer.lr", "links[2].tapes[0].bytes".
// Of a key that is missing it is the place of the object around it; empty where there is neither. It reads the text once more, so that
// nobody keeps places whom they do not concern.
std::string place_of(const std::string& text, const std::string& path);

// A value as a message shows it: JSON on one line, cut where it is long.
std::string json_shown(const nlohmann::json& value);
std::string json_shown(const std::string& text);

// A key, or the dotted path of one, as a message shows it: control characters escaped, without quotes.
std::string shown_key(const std::string& key);

// "a string", "an integer" ...: what a value is, for "must be ..., not ...".
const char* json_kind(const nlohmann::json& value);

// The candidate that a slip of the finger would turn into `word`; empty where none is near.
std::string closest_match(const std::string& word, const std::vector<std::string>& candidates);

// At most `count` of them, the nearest first; those that hold the word whole are nearest. None for a word that is long.
std::vector<std::string> nearest_words(const std::string& word, const std::vector<std::string>& candidates, size_t count);

// `"a", "b", "c"`
std::string quoted_list(const std::vector<std::string>& words);

// `"a", "b" or "c"`
std::string either_of(const std::vector<std::string>& words);

}  // namespace reprise
