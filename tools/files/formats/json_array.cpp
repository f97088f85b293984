// Finds the elements of a JSON list in a file.
#include "tools/files/formats/json_array.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"

namespace reprise {
namespace {

// Scans a list byte by byte. Square brackets and braces are counted together, so "[}" is not
// detected here; read() refuses an element in which they do not match.
class ListScanner {
 public:
  struct Element {
    uint64_t begin, end, line;
  };
  explicit ListScanner(const std::string& path) : path_(path) {}

  // Returns the element that byte `c` at offset `at` ends; nothing if it does not end an element.
  std::optional<Element> take(uint64_t at, char c) {
    const std::optional<Element> ended = take_in_line(at, c);
    if (c == '\n') ++line_;
    return ended;
  }

  void finish() const {
    if (place_ != Place::kBehind) refuse("the list does not end: \"]\" is missing; was the file cut off?");
  }

 private:
  // kBefore: before "[". kFirst: an element or the list's end may follow. kNext: an element must
  // follow. kElement: inside an element. kBehind: after "]".
  enum class Place { kBefore, kFirst, kNext, kElement, kBehind };

  std::optional<Element> take_in_line(uint64_t at, char c) {
    if (place_ == Place::kElement) return take_of_element(at, c);
    if (c == ' ' || c == '\t' || c == '\r' || c == '\n') return std::nullopt;
    if (place_ == Place::kBehind) refuse("something follows the list: " + json_shown(std::string(1, c)));
    if (place_ == Place::kBefore) {
      place_ = Place::kFirst;
      return std::nullopt;
    }
    if (c == ']' && place_ == Place::kFirst) {
      place_ = Place::kBehind;
      return std::nullopt;
    }
    if (c == ']' || c == '}' || c == ',') refuse("an element is missing before " + json_shown(std::string(1, c)));
    place_ = Place::kElement;
    element_ = {at, at, line_};
    depth_ = 0;
    return take_of_element(at, c);
  }

  std::optional<Element> take_of_element(uint64_t at, char c) {
    if (in_string_) {
      in_string_ = escaped_ || c != '"';
      escaped_ = !escaped_ && c == '\\';
      return std::nullopt;
    }
    if (depth_ == 0 && (c == ',' || c == ']')) {
      place_ = c == ',' ? Place::kNext : Place::kBehind;
      element_.end = at;
      return element_;
    }
    in_string_ = c == '"';
    if (c == '{' || c == '[') ++depth_;
    if (c != '}' && c != ']') return std::nullopt;
    if (depth_ == 0) refuse("\"}\" ends nothing");
    --depth_;
    return std::nullopt;
  }

  [[noreturn]] void refuse(const std::string& reason) const {
    throw UserError(path_ + ", line " + std::to_string(line_) + ": " + reason);
  }

  const std::string& path_;
  Place place_ = Place::kBefore;
  Element element_ = {};
  uint64_t line_ = 1, depth_ = 0;
  bool in_string_ = false, escaped_ = false;
};

}  // namespace

JsonArray::JsonArray(const std::string& path) : RecordFile(path) {
  ListScanner scanner(path);
  visit_bytes(after_mark(), [&](uint64_t at, char c) {
    if (const auto element = scanner.take(at, c)) add({element->begin, element->end, element->line});
  });
  scanner.finish();
  if (records_.empty()) throw UserError(path + ": holds no samples: its list is empty");
}

std::string JsonArray::place(uint64_t n) const {
  return path() + ", record " + std::to_string(n + 1) + " (line " + std::to_string(records_[n].line) + ")";
}

nlohmann::ordered_json JsonArray::read(uint64_t n) const {
  return parse_json_record(text(records_[n]), place(n), records_[n].line);
}

}  // namespace reprise
