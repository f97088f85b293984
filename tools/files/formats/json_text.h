// Parses JSON text with clear error messages, for all formats in JSON. The parser's own errors have
// several lines, and it keeps the last of two equal keys; both would mislead a user who mistyped.
#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace reprise {

// Whether comments "// ..." and "/* ... */" are allowed as white space. Callers allow them in files
// that people write, and refuse them in files that programs exchange.
enum class JsonComments { kRefused, kAllowed };

// Limits of a text that is read as JSON. A text within them needs at most about 1 GiB of memory.
constexpr size_t kMaxJsonBytes = size_t{256} << 20, kMaxJsonValues = 5'000'000;

// Returns the value of a JSON text. Throws UserError "FILE: ... (line L, column C)" if it is not
// JSON, not UTF-8, or has a duplicate key in an object. Throws "FILE: ..." if the text exceeds
// these limits or is nested more than 100 deep.
nlohmann::json parse_json(const std::string& text, const std::string& file,
                          JsonComments comments = JsonComments::kRefused);

// Returns the result of parse_json, or a discarded value (is_discarded) if parse_json throws. It is
// for callers that only test whether a file is of some kind.
nlohmann::json json_or_discarded(const std::string& text, JsonComments comments = JsonComments::kRefused);

// Returns the result of parse_json with the keys of each object in the order of the text.
nlohmann::ordered_json parse_ordered_json(const std::string& text, const std::string& file);

// Calls visit(key, value) for each member of the text's outermost object, in order, so that the
// members are never in memory together. Throws UserError like parse_json; the members before the
// fault have then already been visited.
void visit_json_members(const std::string& text, const std::string& file,
                        const std::function<void(const std::string&, nlohmann::json&&)>& visit);

// Returns " (line L, column C)", the place where the value of a path begins in a text that
// parse_json accepts. Paths look like "optimizer.lr" or "links[2].tapes[0].bytes". If there is no
// such value, returns the place of the innermost value around it that exists. Returns "" if that is
// the outermost object. The text is parsed again, so that no places need to be stored while no
// error occurs.
std::string place_of(const std::string& text, const std::string& path);

// Returns a value in the form for messages: JSON on one line, shortened if it is long.
std::string json_shown(const nlohmann::json& value);
std::string json_shown(const std::string& text);

// Returns a key, or a dotted path, in the form for messages: control characters escaped, no quotes.
std::string shown_key(const std::string& key);

// Returns the kind of a value, for "must be ..., not ...": for example "a string" or "an integer".
const char* json_kind(const nlohmann::json& value);

// Returns the candidate that was probably meant by the mistyped `word`; "" if none is similar.
std::string closest_match(const std::string& word, const std::vector<std::string>& candidates);

// Returns at most `count` candidates, the most similar first. A candidate that contains `word`
// counts as most similar. Candidates of more than 64 bytes are ignored. Returns none if `word` is
// empty or longer than 64 bytes.
std::vector<std::string> nearest_words(const std::string& word, const std::vector<std::string>& candidates,
                                       size_t count);

// Returns `"a", "b", "c"`.
std::string quoted_list(const std::vector<std::string>& words);

// Returns `"a", "b" or "c"`.
std::string either_of(const std::vector<std::string>& words);

}  // namespace reprise
