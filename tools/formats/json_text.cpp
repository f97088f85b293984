// JSON text to a value: nlohmann's parser, its errors put on one line with their place, keys given twice refused.
// Here because recipes, safetensors headers and chains all need the same refusals.
#include "tools/formats/json_text.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "tools/formats/error.h"
#include "tools/formats/text.h"
#include "tools/progress/long_work.h"

namespace reprise {
namespace {

using nlohmann::json;

std::string one_line(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return text;
}

// " (line L, column C)": the end of a refusal.
std::string place_at(const std::string& text, size_t byte) {
  size_t line = 1, column = 1;
  for (size_t i = 0; i + 1 < byte && i < text.size(); ++i) {
    if (text[i] == '\n') {
      ++line;
      column = 1;
    } else {
      ++column;
    }
  }
  return " (line " + std::to_string(line) + ", column " + std::to_string(column) + ")";
}

// The library writes "[json.exception.parse_error.101] parse error at line 1, column 2: reason" and, without a place,
// "[json.exception.out_of_range.406] reason"; we keep the reason.
std::string reason_of(const json::exception& error) {
  const std::string what = error.what();
  const size_t at = what.find("parse error at"), name_ends = what.find("] ");
  if (at != std::string::npos && what.find(": ", at) != std::string::npos) return one_line(what.substr(what.find(": ", at) + 2));
  return one_line(name_ends == std::string::npos ? what : what.substr(name_ends + 2));
}

// Goes over the text and tells how far its reader has come: the library names no place of a value.
class CountedByte {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountedByte(const char* at, const char** furthest) : at_(at), furthest_(furthest) {}
  reference operator*() const { return *at_; }
  CountedByte& operator++() {
    *furthest_ = ++at_;
    return *this;
  }
  bool operator==(const CountedByte& other) const { return at_ == other.at_; }
  bool operator!=(const CountedByte& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** furthest_;
};

// The library's parser, and where it stands: the path of the value that comes next or is being read, and that value's first byte.
class JsonWalk {
 public:
  explicit JsonWalk(const std::string& text) : text_(text), furthest_(text.data()) {}

  // `visit(event, depth, value)` is called when a key has been read, and when a value begins or, of a number, a text or a word, ends;
  // path() and value_at() are then that value's.
  template <typename Visit>
  json parse(const Visit& visit, JsonComments comments) {
    const auto follow = [&](int depth, Event event, json& value) {
      if (event == Event::object_end || event == Event::array_end) {
        open_.pop_back();
        end_value();
        return true;
      }
      if (event == Event::key) {
        open_.back().key = value.get<std::string>();
        key_repeated_ = !open_.back().keys.insert(open_.back().key).second;
        begin_ = read();
      }
      visit(event, depth, value);
      if (event == Event::value) end_value();
      if (event == Event::object_start || event == Event::array_start) {
        open_.push_back({.is_list = event == Event::array_start});
        begin_ = read();
      }
      return true;
    };
    const char* const end = text_.data() + text_.size();
    return json::parse(CountedByte(text_.data(), &furthest_), CountedByte(end, &furthest_), follow, true, comments == JsonComments::kAllowed);
  }

  bool key_repeated() const { return key_repeated_; }

  std::string path() const {
    std::string path;
    for (const Open& open : open_) {
      if (!open.is_list && open.key.empty()) continue;
      path += open.is_list ? "[" + std::to_string(open.index) + "]" : (path.empty() ? "" : ".") + open.key;
    }
    return path;
  }

  // What stands between a key, or the element before, and a value: white space, a colon or a comma, comments.
  size_t value_at() const {
    size_t at = begin_;
    for (;;) {
      at = std::min(text_.find_first_not_of(" \t\r\n:,", at), text_.size());
      const std::string two = text_.substr(at, 2);
      if (two != "//" && two != "/*") return at;
      const size_t end = text_.find(two == "//" ? "\n" : "*/", at + 2);
      if (end == std::string::npos) return at;
      at = end + (two == "//" ? 1 : 2);
    }
  }

 private:
  using Event = json::parse_event_t;
  struct Open {
    bool is_list;
    size_t index = 0;  // of a list: of its element that comes next or is being read
    std::string key = {};  // of an object: the last
    std::set<std::string> keys = {};
  };

  size_t read() const { return static_cast<size_t>(furthest_ - text_.data()); }
  void end_value() {
    if (!open_.empty() && open_.back().is_list) ++open_.back().index;
    begin_ = read();
  }

  const std::string& text_;
  const char* furthest_;
  bool key_repeated_ = false;
  size_t begin_ = 0;  // where the last key or value ended, or its list began
  std::vector<Open> open_;
};

// Damerau's: a letter too many, too few or wrong, and two neighbours in the wrong order, each count as one.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> before(b.size() + 1), row(b.size() + 1), next(b.size() + 1);  // of the prefixes of a with i - 2, i - 1 and i letters
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    next[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      next[j] = std::min({row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool transposed = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (transposed) next[j] = std::min(next[j], before[j - 2] + 1);
    }
    before.swap(row);
    row.swap(next);
  }
  return row[b.size()];
}

}  // namespace

json parse_json(const std::string& text, const std::string& file, JsonComments comments) {
  constexpr int kDeepest = 100;  // printing a value recurses
  const LongWork work("reading " + file);
  JsonWalk walk(text);
  const auto refuse_deep_and_repeated = [&](json::parse_event_t event, int depth, const json& value) {
    if (depth > kDeepest) throw UserError(file + ": nested more than " + std::to_string(kDeepest) + " deep");
    if (event != json::parse_event_t::key || !walk.key_repeated()) return;
    throw UserError(file + ": " + json_shown(value) + " is given twice in one object; keep one" + place_at(text, walk.value_at() + 1));
  };
  const auto refuse = [&](size_t byte, const std::string& field, const json::exception& error) {
    throw UserError(file + ": " + (field.empty() ? "" : shown_key(field) + ": ") + "not JSON: " + reason_of(error) + place_at(text, byte));
  };
  try {
    return walk.parse(refuse_deep_and_repeated, comments);
  } catch (const json::parse_error& error) {
    // Unless a key was expected, it is the value of the last key that is wrong, or what follows it.
    const bool at_key = std::string(error.what()).find("object key") != std::string::npos;
    refuse(error.byte, at_key ? "" : walk.path(), error);
  } catch (const json::exception& error) {  // a number beyond double's range
    refuse(walk.value_at() + 1, walk.path(), error);
  }
  return {};
}

std::string place_of(const std::string& text, const std::string& path) {
  using Event = json::parse_event_t;
  JsonWalk walk(text);
  std::string place;
  const auto look = [&](Event event, int, const json&) {
    if (event == Event::key || !place.empty() || walk.path() != path) return;
    place = place_at(text, walk.value_at() + 1);
  };
  try {
    walk.parse(look, JsonComments::kAllowed);
  } catch (const json::exception&) {
    return "";  // no text that parse_json has taken
  }
  const size_t end = path.find_last_of(".[");
  return place.empty() && end != std::string::npos ? place_of(text, path.substr(0, end)) : place;
}

std::string shown_key(const std::string& key) {
  const std::string text = json_shown(key);
  return text.size() >= 2 && text.back() == '"' ? text.substr(1, text.size() - 2) : text;
}

std::string json_shown(const json& value) {
  constexpr size_t kLongest = 60;
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}
std::string json_shown(const std::string& text) { return json_shown(json(text)); }

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

constexpr size_t kLongest = 64;  // the distance is quadratic; nobody means a key of a thousand letters

std::string closest_match(const std::string& word, const std::vector<std::string>& candidates) {
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

std::vector<std::string> nearest_words(const std::string& word, const std::vector<std::string>& candidates, size_t count) {
  if (word.empty() || word.size() > kLongest) return {};
  std::vector<std::pair<size_t, std::string>> ranked;
  for (const std::string& each : candidates) ranked.emplace_back(each.find(word) != std::string::npos ? 0 : edit_distance(word, each), each);
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> nearest;
  for (size_t i = 0; i < std::min(count, ranked.size()); ++i) nearest.push_back(ranked[i].second);
  return nearest;
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
