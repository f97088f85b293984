// Reads the fields of one JSON object of a known format, refusing what is not of it.
// Every reader names the file, the dotted path of the field and what would be right, so no format repeats that.
// It must not know any format.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace reprise {

struct FieldRange {
  double low, high;
  bool low_open = false, high_open = false;  // open: the end itself is not allowed
};

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

  // One of the given words -> its value.
  template <typename T>
  void read_choice(const std::string& key, T& target, std::initializer_list<std::pair<const char*, T>> choices) const {
    if (!has(key)) return;
    std::vector<std::string> words;
    for (const auto& [word, value] : choices) {
      words.emplace_back(word);
      if (object_[key] == word) target = value;
    }
    require_choice(key, words);
  }

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
