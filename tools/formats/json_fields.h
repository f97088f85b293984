// Reads the fields of one JSON object of a known format, refusing what is not of it.
// Every reader names the file, the dotted path of the field and what would be right, so no format repeats that.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/formats/json_text.h"
#include "tools/formats/key_notes.h"

namespace reprise {

// A word of a file and what it stands for. An array of them reads and writes a field.
template <typename T>
struct Word {
  const char* word;
  T value;
};

template <typename T, size_t N>
const char* word_of(const Word<T> (&words)[N], const T& value) {
  for (const Word<T>& entry : words) {
    if (entry.value == value) return entry.word;
  }
  return nullptr;
}

// Where a value comes from.
struct JsonOrigin {
  std::string file;                   // as messages name it
  const std::string* text = nullptr;  // the file's: where given, refusals name line and column
  KeyNotes* notes = nullptr;          // where given, every key that is asked for is noted there, absent or not
};

class JsonFields {
 public:
  // `path` is empty for the outermost object. Throws UserError where the value is no object.
  JsonFields(const nlohmann::json& value, JsonOrigin origin, std::string path);

  // Every key that the object has must be one of these.
  void allow_only(const std::vector<std::string>& keys) const;
  // The key must be given; `hint` says what to give.
  void require(const std::string& key, const std::string& hint) const;

  bool has(const std::string& key) const { return object_.contains(key); }
  bool has_value(const std::string& key) const { return has(key) && !object_[key].is_null(); }  // null: as if absent
  const nlohmann::json& at(const std::string& key) const;  // UserError where the key is missing
  JsonFields object(const std::string& key, const KeyText& text = {}) const;
  JsonFields element(const std::string& list, size_t n) const;  // the n-th of a list of objects

  // Each reads the key into `target` where it is given and leaves `target` alone where it is not. The call is all that is known of the
  // key: a reference and a schema are made of it, so a recipe's key has a text.
  void read(const std::string& key, bool& target, const KeyText& text = {}) const;
  void read(const std::string& key, std::string& target, const KeyText& text = {}) const;
  void read(const std::string& key, std::vector<std::string>& target, const KeyText& text = {}) const;
  void read(const std::string& key, int& target, int low, int high, const KeyText& text = {}) const;
  void read(const std::string& key, uint64_t& target, uint64_t low, uint64_t high, const KeyText& text = {}) const;
  void read(const std::string& key, double& target, const FieldRange& range, const KeyText& text = {}) const;
  void read(const std::string& key, std::optional<int>& target, int low, int high, const KeyText& text = {}) const;  // null: as if absent
  void read(const std::string& key, std::optional<uint64_t>& target, uint64_t low, uint64_t high, const KeyText& text = {}) const;  // the same
  void read(const std::string& key, std::optional<double>& target, const FieldRange& range, const KeyText& text = {}) const;  // the same
  void read(const std::string& key, std::vector<int>& target, int low, int high, const KeyText& text = {}) const;
  void read(const std::string& key, std::vector<uint64_t>& target, uint64_t low, uint64_t high, const KeyText& text = {}) const;
  void read(const std::string& key, std::vector<double>& target, const FieldRange& range, const KeyText& text = {}) const;
  // A path, made absolute: a relative one is of `folder`.
  void read_path(const std::string& key, const std::string& folder, std::string& target, const KeyText& text = {}) const;
  // An integer, or a text that parse_bytes takes; null: as if absent.
  void read_bytes(const std::string& key, std::optional<uint64_t>& target, uint64_t least = 1, const KeyText& text = {}) const;
  void read_bytes(const std::string& key, std::vector<uint64_t>& target, uint64_t least = 1, const KeyText& text = {}) const;  // a list of these

  // One of the words -> its value.
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
  // The same where the key must be given.
  template <typename T, typename V, size_t N>
  void read_required_choice(const std::string& key, T& target, const Word<V> (&words)[N], const KeyText& text = {}) const {
    std::vector<std::string> allowed;
    for (const Word<V>& entry : words) allowed.emplace_back(entry.word);
    require_one_of(key, allowed, text);
    read_choice(key, target, words, text);
  }
  void require_one_of(const std::string& key, const std::vector<std::string>& words, const KeyText& text = {}) const;

  // One value of the key, the key's own or an element of its list.
  uint64_t integer_in(const std::string& key, const nlohmann::json& value, uint64_t low, uint64_t high) const;
  double number_in(const std::string& key, const nlohmann::json& value, const FieldRange& range) const;
  uint64_t bytes_in(const std::string& key, const nlohmann::json& value, uint64_t least) const;
  const nlohmann::json& list_at(const std::string& key) const;

  // Notes a key that its reader reads in a way of its own. `form` and `default_value` are called where notes are taken.
  template <typename Form, typename Default>
  void note(const std::string& key, const Form& form, const Default& default_value, const KeyText& text) const {
    if (origin_.notes != nullptr) origin_.notes->add({path_of(key), form(), default_value(), text});
  }

  std::string path_of(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }
  // `value`: what is wrong, where it is an element of the key's list.
  [[noreturn]] void refuse(const std::string& key, const std::string& reason, const nlohmann::json* value = nullptr) const;

 private:
  template <typename Form, typename T>
  void note_read(const std::string& key, const Form& form, const T& target, const KeyText& text) const {
    note(key, form, [&] { return nlohmann::json(target); }, text);
  }
  std::string place(const std::string& path) const { return origin_.text == nullptr ? "" : place_of(*origin_.text, path); }
  void require_choice(const std::string& key, const std::vector<std::string>& words) const;

  const nlohmann::json& object_;
  JsonOrigin origin_;
  std::string path_;
};

}  // namespace reprise
