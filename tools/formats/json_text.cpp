// JSON text to a value: nlohmann's parser, its errors put on one line, keys given twice refused.
// Here because recipes, safetensors headers and chains all need the same refusals.
#include "tools/formats/json_text.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "tools/formats/error.h"

namespace reprise {
namespace {

using nlohmann::json;

std::string one_line(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return text;
}

std::string position_of(const std::string& text, size_t byte) {
  size_t line = 1, column = 1;
  for (size_t i = 0; i + 1 < byte && i < text.size(); ++i) {
    if (text[i] == '\n') {
      ++line;
      column = 1;
    } else {
      ++column;
    }
  }
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

// The library writes "[json.exception.parse_error.101] parse error at line 1, column 2: reason"; we keep the reason.
std::string reason_of(const json::parse_error& error) {
  const std::string what = error.what();
  const size_t at = what.find("parse error at");
  const size_t colon = at == std::string::npos ? at : what.find(": ", at);
  return one_line(colon == std::string::npos ? what : what.substr(colon + 2));
}

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

json parse_json(const std::string& text, const std::string& file) {
  constexpr int kDeepest = 100;             // printing a value recurses
  std::vector<std::set<std::string>> keys;  // of the objects that are open, outermost first
  const auto refuse_repeated_keys = [&](int depth, json::parse_event_t event, json& value) {
    if (depth > kDeepest) throw UserError(file + ": nested more than " + std::to_string(kDeepest) + " deep");
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
      throw UserError(file + ": " + json_shown(value) + " is given twice in one object; keep one");
    }
    return true;
  };
  try {
    return json::parse(text, refuse_repeated_keys);
  } catch (const json::parse_error& error) {
    throw UserError(file + ": " + position_of(text, error.byte) + ": not JSON: " + reason_of(error));
  } catch (const json::exception& error) {  // a number beyond double's range
    throw UserError(file + ": not JSON: " + one_line(error.what()));
  }
}

std::string json_shown(const json& value) {
  constexpr size_t kLongest = 60;
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

const char* json_kind(const json& value) {
  switch (value.type()) {
    case json::value_t::null: return "null";
    case json::value_t::boolean: return "true or false";
    case json::value_t::string: return "a string";
    case json::value_t::array: return "a list";
    case json::value_t::object: return "an object";
    case json::value_t::number_integer:
    case json::value_t::number_unsigned: return "an integer";
    case json::value_t::number_float: return "a number";
    default: return "not JSON";
  }
}

std::string closest_match(const std::string& word, const std::vector<std::string>& candidates) {
  constexpr size_t kLongest = 64;  // the distance is quadratic; nobody means a key of a thousand letters
  if (word.size() > kLongest) return "";
  std::string best;
  size_t best_distance = 1 + std::max<size_t>(1, word.size() / 3);
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string quoted_list(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "\"" : ", \"") + word + "\"";
  return text;
}

std::string either_of(const std::vector<std::string>& words) {
  if (words.size() < 2) return quoted_list(words);
  return quoted_list({words.begin(), words.end() - 1}) + " or " + quoted_list({words.back()});
}

}  // namespace reprise
