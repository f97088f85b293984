// Reads the fields of one JSON object of a known format, and refuses everything else. Error
// messages name the file, the dotted path of the field and what would be correct.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/files/formats/json_text.h"
#include "tools/files/formats/key_notes.h"

namespace reprise {

// A word in a file, and the value that the word means. read_choice() and word_of() take an array of
// these.
template <typename T>
struct Word {
  const char* word;
  T value;
};

// Returns the word for a value; null if there is none.
template <typename T, size_t N>
const char* word_of(const Word<T> (&words)[N], const T& value) {
  for (const Word<T>& entry : words) {
    if (entry.value == value) return entry.word;
  }
  return nullptr;
}

// Where a value comes from, for messages and notes.
struct JsonOrigin {
  std::string file;                   // the file's name in messages
  const std::string* text = nullptr;  // the file's text; if given, error messages name line and column
  KeyNotes* notes = nullptr;  // if given, receives a note for every requested key, also if the object lacks the key
};

// A view of one JSON object with checked access to its keys.
class JsonFields {
 public:
  // Views `value`, which must outlive this object. `path` is the dotted path of the value, "" for
  // the outermost object. Throws UserError if the value is not an object.
  JsonFields(const nlohmann::json& value, JsonOrigin origin, std::string path);

  // Throws UserError if the object has a key that is not in `keys`.
  void allow_only(const std::vector<std::string>& keys) const;
  // Throws UserError with `hint`, which tells what to give, if the key is missing.
  void require(const std::string& key, const std::string& hint) const;

  bool has(const std::string& key) const { return object_.contains(key); }
  bool has_value(const std::string& key) const { return has(key) && !object_[key].is_null(); }  // null counts as absent
  const nlohmann::json& at(const std::string& key) const;  // throws UserError if the key is missing
  JsonFields object(const std::string& key, const KeyText& text = {}) const;
  JsonFields element(const std::string& list, size_t n) const;  // returns element n of a list of objects

  // Reads the key into `target`; leaves `target` unchanged if the key is absent. The format's
  // documentation and JSON Schema are made from these calls; `text` is their description of the
  // key.
  void read(const std::string& key, bool& target, const KeyText& text = {}) const;
  void read(const std::string& key, std::string& target, const KeyText& text = {}) const;
  void read(const std::string& key, std::vector<std::string>& target, const KeyText& text = {}) const;
  void read(const std::string& key, int& target, int low, int high, const KeyText& text = {}) const;
  void read(const std::string& key, uint64_t& target, uint64_t low, uint64_t high, const KeyText& text = {}) const;
  void read(const std::string& key, double& target, const FieldRange& range, const KeyText& text = {}) const;
  // Reads an optional value. In this function and the next two, null counts as absent.
  void read(const std::string& key, std::optional<int>& target, int low, int high, const KeyText& text = {}) const;
  void read(const std::string& key, std::optional<uint64_t>& target, uint64_t low, uint64_t high,
            const KeyText& text = {}) const;
  void read(const std::string& key, std::optional<double>& target, const FieldRange& range,
            const KeyText& text = {}) const;
  void read(const std::string& key, std::vector<int>& target, int low, int high, const KeyText& text = {}) const;
  void read(const std::string& key, std::vector<uint64_t>& target, uint64_t low, uint64_t high,
            const KeyText& text = {}) const;
  void read(const std::string& key, std::vector<double>& target, const FieldRange& range,
            const KeyText& text = {}) const;
  // Reads a path and makes it absolute: a relative path is relative to `folder`.
  void read_path(const std::string& key, const std::string& folder, std::string& target,
                 const KeyText& text = {}) const;
  // Reads bytes: an integer, or a text that parse_bytes accepts; null counts as absent.
  void read_bytes(const std::string& key, std::optional<uint64_t>& target, uint64_t minimum = 1,
                  const KeyText& text = {}) const;
  // Reads a list of integers or texts that parse_bytes accepts.
  void read_bytes(const std::string& key, std::vector<uint64_t>& target, uint64_t minimum = 1,
                  const KeyText& text = {}) const;

  // Reads one of the words, and stores its value in `target`. Leaves `target` unchanged if the key
  // is absent.
  template <typename T, typename V, size_t N>
  void read_choice(const std::string& key, T& target, const Word<V> (&words)[N], const KeyText& text = {}) const {
    std::vector<std::string> allowed;
    for (const Word<V>& entry : words) allowed.emplace_back(entry.word);
    const auto default_word = [&] {
      nlohmann::json word;
      for (const Word<V>& entry : words) {
        if (word.is_null() && target == entry.value) word = entry.word;
      }
      return word;
    };
    note(key, [&] { return word_form(allowed); }, default_word, text);
    if (!has(key)) return;
    require_choice(key, allowed);
    for (const auto& [word, value] : words) {
      if (object_[key] == word) target = value;
    }
  }
  // Reads one of the words. Throws UserError if the key is missing.
  template <typename T, typename V, size_t N>
  void read_required_choice(const std::string& key, T& target, const Word<V> (&words)[N],
                            const KeyText& text = {}) const {
    std::vector<std::string> allowed;
    for (const Word<V>& entry : words) allowed.emplace_back(entry.word);
    require_one_of(key, allowed, text);
    read_choice(key, target, words, text);
  }
  // Throws UserError if the key is missing or its value is none of the words.
  void require_one_of(const std::string& key, const std::vector<std::string>& words, const KeyText& text = {}) const;

  // Returns `value`, which is the value of the key or an element of the key's list. Throws
  // UserError if `value` is not in the range.
  uint64_t integer_in(const std::string& key, const nlohmann::json& value, uint64_t low, uint64_t high) const;
  double number_in(const std::string& key, const nlohmann::json& value, const FieldRange& range) const;
  uint64_t bytes_in(const std::string& key, const nlohmann::json& value, uint64_t minimum) const;
  const nlohmann::json& list_at(const std::string& key) const;

  // Adds a note about a key that is not read with read(). `form` and `default_value` are only
  // called if notes are requested.
  template <typename Form, typename Default>
  void note(const std::string& key, const Form& form, const Default& default_value, const KeyText& text) const {
    if (origin_.notes != nullptr) origin_.notes->add({path_of(key), form(), default_value(), text});
  }

  std::string path_of(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }
  // Throws UserError that names the file, the key and the reason, and line and column if the file's
  // text is known. They are those of `value` if it is given; it must be an element of the key's
  // list. Otherwise they are those of the key.
  [[noreturn]] void refuse(const std::string& key, const std::string& reason,
                           const nlohmann::json* value = nullptr) const;

 private:
  template <typename Form, typename T>
  void note_read(const std::string& key, const Form& form, const T& target, const KeyText& text) const {
    note(key, form, [&] { return nlohmann::json(target); }, text);
  }
  std::string place(const std::string& path) const {
    return origin_.text == nullptr ? "" : place_of(*origin_.text, path);
  }
  void require_choice(const std::string& key, const std::vector<std::string>& words) const;

  const nlohmann::json& object_;
  JsonOrigin origin_;
  std::string path_;
};

}  // namespace reprise
