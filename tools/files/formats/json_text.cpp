// Parses JSON text with nlohmann's parser. Puts its errors on one line with their place, and
// refuses duplicate keys. Recipes, safetensors headers and chains all need this.
#include "tools/files/formats/json_text.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <type_traits>
#include <unordered_set>

#include "tools/files/io/error.h"
#include "tools/files/io/file_kind.h"
#include "tools/files/io/text.h"
#include "tools/files/progress/long_work.h"

namespace reprise {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

std::string one_line(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return text;
}

// Returns " (line L, column C)", the last part of an error message.
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

// Returns the reason from an error of the library. The library's text is
// "[json.exception.parse_error.101] parse error at line 1, column 2: reason" or, without a place,
// "[json.exception.out_of_range.406] reason".
std::string reason_of(const json::exception& error) {
  const std::string what = error.what();
  const size_t at = what.find("parse error at"), name_ends = what.find("] ");
  if (at != std::string::npos && what.find(": ", at) != std::string::npos)
    return one_line(what.substr(what.find(": ", at) + 2));
  return one_line(name_ends == std::string::npos ? what : what.substr(name_ends + 2));
}

// An iterator over the text that records how far the parser has read. It is needed because the
// library does not report where a value is.
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

// Reads a text with the library's parser and passes its events to a derived class. Refuses a text
// that is not JSON, too large or too deep. The library's callback parser would be shorter, but its
// time is quadratic in the number of an object's members.
template <typename Json>
class JsonWalk : public nlohmann::json_sax<Json> {
 public:
  JsonWalk(const std::string& text, const std::string& file) : text_(text), file_(file), furthest_(text.data()) {}

  // Parses the text. Throws UserError.
  void read(JsonComments comments) {
    refuse_other_kinds(file_, text_, "JSON");
    if (text_.size() > kMaxJsonBytes)
      refuse("larger than " + std::to_string(kMaxJsonBytes >> 20) + " MiB, the most that is read as JSON");
    const char* const end = text_.data() + text_.size();
    nlohmann::json_sax<Json>* const events = this;
    Json::sax_parse(CountedByte(text_.data(), &furthest_), CountedByte(end, &furthest_), events,
                    Json::input_format_t::json, true, comments == JsonComments::kAllowed);
  }

 protected:
  struct Open {
    bool is_list;
    size_t index = 0;      // in a list: index of the next or the current element
    std::string key = {};  // in an object: the last key
  };

  // Called after a key was read; the key is open().back().key.
  virtual void take_key() {}
  // Called at the end of a number, text or word with its value. At the beginning of a list or
  // object it is called with an empty list or object.
  virtual void take_value(Json&& value) = 0;
  // Called at the end of a list or object, which is open().back().
  virtual void take_end() {}

  const std::vector<Open>& open() const { return open_; }
  void forget_values() { values_ = 0; }  // restarts the count: the values so far are no longer in memory
  [[noreturn]] void refuse(const std::string& reason) const { throw UserError(file_ + ": " + reason); }
  // Returns " (line L, column C)" for the current value, or for the next one if none has begun.
  std::string value_place() const { return place_at(text_, value_at() + 1); }

 private:
  static constexpr size_t kDeepest = 100;  // maximum nesting; limited because the code that prints a value is recursive

  bool null() override { return leaf(nullptr); }
  bool boolean(bool value) override { return leaf(value); }
  bool number_integer(int64_t value) override { return leaf(value); }
  bool number_unsigned(uint64_t value) override { return leaf(value); }
  bool number_float(double value, const std::string& /*digits*/) override { return leaf(value); }
  bool string(std::string& value) override { return leaf(std::move(value)); }
  bool binary(typename Json::binary_t& /*value*/) override { return false; }  // never called: text has no binary values
  bool start_object(size_t /*elements*/) override { return begin(Json::value_t::object); }
  bool start_array(size_t /*elements*/) override { return begin(Json::value_t::array); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }

  bool key(std::string& name) override {
    require_shallow();
    open_.back().key = std::move(name);
    begin_ = read_bytes();
    take_key();
    return true;
  }

  bool parse_error(size_t byte, const std::string& /*token*/, const json::exception& error) override {
    constexpr int kNotJson = 101;  // the other errors are numbers beyond the range of double
    // Unless a key was expected, the fault is in the value of the last key, or directly after it.
    const bool at_key = error.id == kNotJson && std::string(error.what()).find("object key") != std::string::npos;
    const std::string field = at_key ? "" : path();
    refuse((field.empty() ? "" : shown_key(field) + ": ") + "not JSON: " + reason_of(error) +
           (error.id == kNotJson ? place_at(text_, byte) : value_place()));
    return false;  // never reached
  }

  bool leaf(Json&& value) {
    require_space();
    take_value(std::move(value));
    end_value();
    return true;
  }
  bool begin(typename Json::value_t type) {
    require_space();
    take_value(Json(type));
    open_.push_back({.is_list = type == Json::value_t::array});
    begin_ = read_bytes();
    return true;
  }
  bool end() {
    take_end();
    open_.pop_back();
    end_value();
    return true;
  }
  void end_value() {
    if (!open_.empty() && open_.back().is_list) ++open_.back().index;
    begin_ = read_bytes();
  }

  void require_shallow() const {
    if (open_.size() > kDeepest) refuse("nested more than " + std::to_string(kDeepest) + " deep");
  }
  void require_space() {
    require_shallow();
    if (++values_ > kMaxJsonValues)
      refuse("holds more than " + std::to_string(kMaxJsonValues) + " values, the most that are read as JSON");
  }

  size_t read_bytes() const { return static_cast<size_t>(furthest_ - text_.data()); }

  std::string path() const {
    std::string path;
    for (const Open& open : open_) path += step_to(open, path.empty());
    return path;
  }

 protected:
  // Returns the part of a path for the current or the next element of `open`: "[2]" or ".lr"; "lr"
  // if it is the path's first part.
  static std::string step_to(const Open& open, bool begins) {
    if (open.is_list) return "[" + std::to_string(open.index) + "]";
    return open.key.empty() ? "" : (begins ? "" : ".") + open.key;
  }

 private:
  // Returns where the current or the next value begins: after white space, colons, commas and
  // comments.
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

  const std::string& text_;
  const std::string file_;
  const char* furthest_;
  size_t begin_ = 0;  // end of the last key or value, or begin of the list if it has none yet
  size_t values_ = 0;
  std::vector<Open> open_;
};

// Builds the value of a text. If `visit` is given, each member of the outermost object is passed to
// it and then deleted.
template <typename Json>
class JsonBuilder : public JsonWalk<Json> {
 public:
  using Visit = std::function<void(const std::string&, Json&&)>;
  JsonBuilder(const std::string& text, const std::string& file, Visit visit = nullptr)
      : JsonWalk<Json>(text, file), visit_(std::move(visit)) {}

  Json build(JsonComments comments) {
    this->read(comments);
    return std::move(root_);
  }

 private:
  void take_key() override {
    member_ = add_member(this->open().back().key);
    if (member_ != nullptr) return;
    this->refuse(json_shown(this->open().back().key) + " is given twice in one object; keep one" + this->value_place());
  }

  // Adds a member and returns its address; null if the object already has a member with this name.
  Json* add_member(const std::string& name) {
    auto& members = built_.back()->template get_ref<typename Json::object_t&>();
    if constexpr (std::is_same_v<Json, json>) {
      const auto [member, is_new] = members.emplace(name, nullptr);
      return is_new ? &member->second : nullptr;
    } else {  // a list of pairs, which the library would search for each new key
      if (!names_.back().insert(name).second) return nullptr;
      members.emplace_back(name, nullptr);
      return &members.back().second;
    }
  }

  void take_value(Json&& value) override {
    Json* place = &root_;
    if (!built_.empty()) place = this->open().back().is_list ? &built_.back()->emplace_back() : member_;
    *place = std::move(value);
    if (place->is_structured()) {
      built_.push_back(place);
      names_.emplace_back();
    } else {
      hand_over(*place);
    }
  }

  void take_end() override {
    Json* const ended = built_.back();
    built_.pop_back();
    names_.pop_back();
    hand_over(*ended);
  }

  void hand_over(Json& value) {
    if (!visit_ || built_.size() != 1 || !root_.is_object()) return;
    visit_(this->open().front().key, std::move(value));
    value = nullptr;
    this->forget_values();
  }

  Visit visit_;
  Json root_, *member_ = nullptr;
  std::vector<Json*> built_;  // the open lists and objects, outermost first
  // For each element of built_: the keys that it has so far, if it is an object and Json is
  // ordered_json; otherwise empty
  std::vector<std::unordered_set<std::string>> names_;
};

// Finds where the value of a path begins; if the path is missing, where the value around it begins.
class PlaceFinder : public JsonWalk<json> {
 public:
  PlaceFinder(const std::string& text, const std::string& path)
      : JsonWalk(text, ""), path_(path), places_(path.size() + 1) {}

  std::string find() {
    try {
      read(JsonComments::kAllowed);
    } catch (const UserError&) {
      return "";  // parse_json() would refuse the text, too
    }
    for (size_t end = path_.size();; end = path_.find_last_of(".[", end - 1)) {
      if (end == std::string::npos) return "";
      if (!places_[end].empty() || end == 0) return places_[end];
    }
  }

 private:
  // Records the place of a value if the path, or a beginning of the path, leads to it. Adds an
  // entry to on_way_ for a list or object.
  void take_value(json&& value) override {
    size_t letters = 0;
    if (!on_way_.empty()) {
      letters = on_way_.back();
      const std::string step = letters == kElsewhere ? "" : step_to(open().back(), letters == 0);
      letters =
          letters == kElsewhere || path_.compare(letters, step.size(), step) != 0 ? kElsewhere : letters + step.size();
    }
    if (letters != kElsewhere && places_[letters].empty()) places_[letters] = value_place();
    if (value.is_structured()) on_way_.push_back(letters);
  }
  void take_end() override { on_way_.pop_back(); }

  static constexpr size_t kElsewhere = std::string::npos;
  const std::string& path_;
  // places_[n] is the place of the value to which the first n bytes of the path lead; "" if there
  // is no such value.
  std::vector<std::string> places_;
  std::vector<size_t> on_way_;  // for each open list or object: how many bytes of the path lead to it; else kElsewhere
};

// Returns Damerau's distance: the number of missing, additional, wrong or swapped neighbouring
// bytes.
size_t edit_distance(const std::string& a, const std::string& b) {
  // Rows of the table for the first i - 2, i - 1 and i bytes of a.
  std::vector<size_t> before(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
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
  const LongWork work("reading " + file);
  return JsonBuilder<json>(text, file).build(comments);
}

json json_or_discarded(const std::string& text, JsonComments comments) {
  try {
    return parse_json(text, "", comments);
  } catch (const UserError&) {
    return json(json::value_t::discarded);
  }
}

ordered_json parse_ordered_json(const std::string& text, const std::string& file) {
  const LongWork work("reading " + file);
  return JsonBuilder<ordered_json>(text, file).build(JsonComments::kRefused);
}

void visit_json_members(const std::string& text, const std::string& file,
                        const std::function<void(const std::string&, json&&)>& visit) {
  const LongWork work("reading " + file);
  JsonBuilder<json>(text, file, visit).build(JsonComments::kRefused);
}

std::string place_of(const std::string& text, const std::string& path) { return PlaceFinder(text, path).find(); }

std::string shown_key(const std::string& key) {
  const std::string text = json_shown(key);
  return text.size() >= 2 && text.back() == '"' ? text.substr(1, text.size() - 2) : text;
}

// Appends the value as JSON until the text has more than `longest` bytes. The parser's depth limit
// bounds the recursion.
void append_json(const json& value, size_t longest, std::string& text) {
  const auto append_text = [&](const std::string& word) {
    text += json(word.substr(0, longest)).dump(-1, ' ', true, json::error_handler_t::replace);
  };
  if (value.is_string()) return append_text(value.get_ref<const std::string&>());
  if (!value.is_structured()) {
    text += value.dump();
    return;
  }
  text += value.is_array() ? "[" : "{";
  const char* between = "";
  for (auto member = value.begin(); member != value.end() && text.size() <= longest; ++member) {
    text += between;
    if (value.is_object()) append_text(member.key());
    if (value.is_object()) text += ":";
    append_json(*member, longest, text);
    between = ",";
  }
  text += value.is_array() ? "]" : "}";
}

std::string json_shown(const json& value) {
  constexpr size_t kLongest = 60;
  std::string text;
  append_json(value, kLongest, text);
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

constexpr size_t kLongest = 64;  // no real key is longer; the distance takes quadratic time

std::string closest_match(const std::string& word, const std::vector<std::string>& candidates) {
  if (word.size() > kLongest) return "";
  std::string best;
  size_t best_distance = 1 + std::max<size_t>(1, word.size() / 3);
  for (const std::string& candidate : candidates) {
    const size_t longer = std::max(word.size(), candidate.size()), shorter = std::min(word.size(), candidate.size());
    if (longer - shorter >= best_distance) continue;
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::vector<std::string> nearest_words(const std::string& word, const std::vector<std::string>& candidates,
                                       size_t count) {
  if (word.empty() || word.size() > kLongest) return {};
  std::vector<std::pair<size_t, std::string>> ranked;
  for (const std::string& each : candidates) {
    if (each.size() <= kLongest)
      ranked.emplace_back(each.find(word) != std::string::npos ? 0 : edit_distance(word, each), each);
  }
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
