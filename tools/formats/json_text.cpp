// JSON text to a value: nlohmann's parser, its errors put on one line with their place, keys given twice refused.
// Here because recipes, safetensors headers and chains all need the same refusals.
#include "tools/formats/json_text.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <type_traits>
#include <unordered_set>

#include "tools/formats/error.h"
#include "tools/formats/text.h"
#include "tools/progress/long_work.h"

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

// Reads a text with the library's parser, whose events it hands to a class derived from it, and refuses what is no JSON, too large or too
// deep. Its callback parser would be shorter, but takes a time that is quadratic in the members of an object.
template <typename Json>
class JsonWalk : public nlohmann::json_sax<Json> {
 public:
  JsonWalk(const std::string& text, const std::string& file) : text_(text), file_(file), furthest_(text.data()) {}

  // Throws UserError.
  void read(JsonComments comments) {
    if (text_.size() > kMostJsonBytes) refuse("larger than " + std::to_string(kMostJsonBytes >> 20) + " MiB, the most that is read as JSON");
    const char* const end = text_.data() + text_.size();
    nlohmann::json_sax<Json>* const events = this;
    Json::sax_parse(CountedByte(text_.data(), &furthest_), CountedByte(end, &furthest_), events, Json::input_format_t::json, true,
                    comments == JsonComments::kAllowed);
  }

 protected:
  struct Open {
    bool is_list;
    size_t index = 0;      // of a list: of its element that comes next or is being read
    std::string key = {};  // of an object: the last
  };

  // Called when the key open().back().key has been read.
  virtual void take_key() {}
  // Called when a number, a text or a word ends, and with an empty list or object when one begins.
  virtual void take_value(Json&& value) = 0;
  // Called when the list or object open().back() ends.
  virtual void take_end() {}

  const std::vector<Open>& open() const { return open_; }
  void forget_values() { values_ = 0; }  // that were counted so far: they are no longer in memory
  [[noreturn]] void refuse(const std::string& reason) const { throw UserError(file_ + ": " + reason); }
  // " (line L, column C)" of the value that comes next or is being read.
  std::string value_place() const { return place_at(text_, value_at() + 1); }

 private:
  static constexpr size_t kDeepest = 100;  // printing a value recurses

  bool null() override { return leaf(nullptr); }
  bool boolean(bool value) override { return leaf(value); }
  bool number_integer(int64_t value) override { return leaf(value); }
  bool number_unsigned(uint64_t value) override { return leaf(value); }
  bool number_float(double value, const std::string& /*digits*/) override { return leaf(value); }
  bool string(std::string& value) override { return leaf(std::move(value)); }
  bool binary(typename Json::binary_t& /*value*/) override { return false; }  // never: text has none
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
    constexpr int kNotJson = 101;  // else: a number beyond double's range
    // Unless a key was expected, it is the value of the last key that is wrong, or what follows it.
    const bool at_key = error.id == kNotJson && std::string(error.what()).find("object key") != std::string::npos;
    const std::string field = at_key ? "" : path();
    refuse((field.empty() ? "" : shown_key(field) + ": ") + "not JSON: " + reason_of(error) +
           (error.id == kNotJson ? place_at(text_, byte) : value_place()));
    return false;  // never
  }

  bool leaf(Json&& value) {
    require_room();
    take_value(std::move(value));
    end_value();
    return true;
  }
  bool begin(typename Json::value_t type) {
    require_room();
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
  void require_room() {
    require_shallow();
    if (++values_ > kMostJsonValues) refuse("holds more than " + std::to_string(kMostJsonValues) + " values, the most that are read as JSON");
  }

  size_t read_bytes() const { return static_cast<size_t>(furthest_ - text_.data()); }

  std::string path() const {
    std::string path;
    for (const Open& open : open_) path += step_to(open, path.empty());
    return path;
  }

 protected:
  // Returns what a path has for the element of `open` that comes next or is being read: "[2]", ".lr", or "lr" if it begins the path.
  static std::string step_to(const Open& open, bool begins) {
    if (open.is_list) return "[" + std::to_string(open.index) + "]";
    return open.key.empty() ? "" : (begins ? "" : ".") + open.key;
  }

 private:
  // Returns where the value begins: between a key, or the element before, and a value there are white space, a colon or a comma, comments.
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
  size_t begin_ = 0;  // where the last key or value ended, or its list began
  size_t values_ = 0;
  std::vector<Open> open_;
};

// Builds the value of a text. Members of the outermost object go one by one to `visit`, if it is given, and do not stay in memory.
template <typename Json>
class JsonBuilder : public JsonWalk<Json> {
 public:
  using Visit = std::function<void(const std::string&, Json&&)>;
  JsonBuilder(const std::string& text, const std::string& file, Visit visit = nullptr) : JsonWalk<Json>(text, file), visit_(std::move(visit)) {}

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

  // Adds a member and returns its place, or null where there is one of that name.
  Json* add_member(const std::string& name) {
    auto& members = built_.back()->template get_ref<typename Json::object_t&>();
    if constexpr (std::is_same_v<Json, json>) {
      const auto [member, is_new] = members.emplace(name, nullptr);
      return is_new ? &member->second : nullptr;
    } else {  // a list of pairs, in which the library would look for each new key
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
  std::vector<Json*> built_;                            // the lists and objects that are open
  std::vector<std::unordered_set<std::string>> names_;  // of each, if it is an object whose members keep their order
};

// Looks for the place of a path, or of what is around it if it is missing.
class PlaceFinder : public JsonWalk<json> {
 public:
  PlaceFinder(const std::string& text, const std::string& path) : JsonWalk(text, ""), path_(path), places_(path.size() + 1) {}

  std::string find() {
    try {
      read(JsonComments::kAllowed);
    } catch (const UserError&) {
      return "";  // no text that parse_json has taken
    }
    for (size_t end = path_.size();; end = path_.find_last_of(".[", end - 1)) {
      if (end == std::string::npos) return "";
      if (!places_[end].empty() || end == 0) return places_[end];
    }
  }

 private:
  // How many letters of the path lead to a value; kElsewhere where it is not on the way.
  void take_value(json&& value) override {
    size_t letters = 0;
    if (!on_way_.empty()) {
      letters = on_way_.back();
      const std::string step = letters == kElsewhere ? "" : step_to(open().back(), letters == 0);
      letters = letters == kElsewhere || path_.compare(letters, step.size(), step) != 0 ? kElsewhere : letters + step.size();
    }
    if (letters != kElsewhere && places_[letters].empty()) places_[letters] = value_place();
    if (value.is_structured()) on_way_.push_back(letters);
  }
  void take_end() override { on_way_.pop_back(); }

  static constexpr size_t kElsewhere = std::string::npos;
  const std::string& path_;
  std::vector<std::string> places_;  // of the value to which the first letters of the path lead, for each number of letters
  std::vector<size_t> on_way_;       // of each open list or object, how many letters lead to it
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

ordered_json parse_ordered_json(const std::string& text, const std::string& file, JsonComments comments) {
  const LongWork work("reading " + file);
  return JsonBuilder<ordered_json>(text, file).build(comments);
}

void visit_json_members(const std::string& text, const std::string& file, const std::function<void(const std::string&, json&&)>& visit) {
  const LongWork work("reading " + file);
  JsonBuilder<json>(text, file, visit).build(JsonComments::kRefused);
}

std::string place_of(const std::string& text, const std::string& path) { return PlaceFinder(text, path).find(); }

std::string shown_key(const std::string& key) {
  const std::string text = json_shown(key);
  return text.size() >= 2 && text.back() == '"' ? text.substr(1, text.size() - 2) : text;
}

// Appends the value as JSON, until the text has more than `longest` letters. A value nests at most as deep as the parser allows.
void append_json(const json& value, size_t longest, std::string& text) {
  const auto append_text = [&](const std::string& word) { text += json(word.substr(0, longest)).dump(-1, ' ', true, json::error_handler_t::replace); };
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

constexpr size_t kLongest = 64;  // the distance is quadratic; nobody means a key of a thousand letters

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

std::vector<std::string> nearest_words(const std::string& word, const std::vector<std::string>& candidates, size_t count) {
  if (word.empty() || word.size() > kLongest) return {};
  std::vector<std::pair<size_t, std::string>> ranked;
  for (const std::string& each : candidates) {
    if (each.size() <= kLongest) ranked.emplace_back(each.find(word) != std::string::npos ? 0 : edit_distance(word, each), each);
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
