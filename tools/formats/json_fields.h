// Reads the fields of one JSON object of a known format, refusing what is not of it.
// Every reader names the file, the dotted path of the field and what would be right, so no format repeats that.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace reprise {

struct FieldRange {
  double low, high;
  bool low_open = false, high_open = false;  // open: the end itself is not allowed
};
constexpr FieldRange kAnyNumber = {-std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
constexpr FieldRange kNonNegative = {0, kAnyNumber.high};
constexpr FieldRange kPositive = {.low = 0, .high = kAnyNumber.high, .low_open = true};
// What the proof of a plan lets pass (lib/attributes.h), said while the recipe is read.
constexpr FieldRange kEpsilon = {1e-37, 1};  // a positive f32
constexpr FieldRange kFactor = {0, 1e6};
constexpr FieldRange kBelowOne = {.low = 0, .high = 1, .high_open = true};
constexpr int kMostCount = std::numeric_limits<int>::max();

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

class JsonFields {
 public:
  // `path` is empty for the outermost object. Throws UserError where the value is no object.
  JsonFields(const nlohmann::json& value, std::string file, std::string path);

  // Every key that the object has must be one of these.
  void allow_only(const std::vector<std::string>& keys) const;

  bool has(const std::string& key) const { return object_.contains(key); }
  bool has_value(const std::string& key) const { return has(key) && !object_[key].is_null(); }  // null: as if absent
  const nlohmann::json& at(const std::string& key) const;  // UserError where the key is missing
  JsonFields object(const std::string& key) const { return {at(key), file_, path_of(key)}; }

  // Each reads the key into `target` where it is given and leaves `target` alone where it is not.
  void read(const std::string& key, bool& target) const;
  void read(const std::string& key, std::string& target) const;
  void read(const std::string& key, std::vector<std::string>& target) const;
  void read(const std::string& key, int& target, int low, int high) const;
  void read(const std::string& key, uint64_t& target, uint64_t low, uint64_t high) const;
  void read(const std::string& key, double& target, const FieldRange& range) const;
  void read(const std::string& key, std::optional<double>& target, const FieldRange& range) const;  // null: as if absent
  void read(const std::string& key, std::vector<int>& target, int low, int high) const;
  // A path, made absolute: a relative one is of `folder`.
  void read_path(const std::string& key, const std::string& folder, std::string& target) const;
  // An integer, or a text that parse_bytes takes; null: as if absent.
  void read_bytes(const std::string& key, std::optional<uint64_t>& target, uint64_t least = 1) const;

  // One of the words -> its value.
  template <typename T, typename V, size_t N>
  void read_choice(const std::string& key, T& target, const Word<V> (&words)[N]) const {
    if (!has(key)) return;
    std::vector<std::string> allowed;
    for (const auto& [word, value] : words) {
      allowed.emplace_back(word);
      if (object_[key] == word) target = value;
    }
    require_choice(key, allowed);
  }
  // The same where the key must be given.
  template <typename T, typename V, size_t N>
  void read_required_choice(const std::string& key, T& target, const Word<V> (&words)[N]) const {
    std::vector<std::string> allowed;
    for (const Word<V>& entry : words) allowed.emplace_back(entry.word);
    require_one_of(key, allowed);
    read_choice(key, target, words);
  }
  void require_one_of(const std::string& key, const std::vector<std::string>& words) const;

  // One value of the key, the key's own or an element of its list.
  uint64_t integer_in(const std::string& key, const nlohmann::json& value, uint64_t low, uint64_t high) const;
  double number_in(const std::string& key, const nlohmann::json& value, const FieldRange& range) const;
  const nlohmann::json& list_at(const std::string& key) const;

  std::string path_of(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }
  [[noreturn]] void refuse(const std::string& key, const std::string& reason) const;

 private:
  void require_choice(const std::string& key, const std::vector<std::string>& words) const;
  const nlohmann::json& object_;
  std::string file_, path_;
};

}  // namespace reprise
