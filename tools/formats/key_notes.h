// What a format's reader knows of its keys, noted while it reads: form, default, meaning.
// Here because a reference and a schema made of the reads themselves cannot say anything else than the reader does.
#pragma once

#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
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

// What a value must be: the words that follow "must be" in a refusal, and the same as JSON Schema.
struct ValueForm {
  std::string words;
  nlohmann::json schema;
};
ValueForm bool_form();
ValueForm string_form();
ValueForm path_form();
ValueForm bytes_form(uint64_t least);
ValueForm object_form();
ValueForm null_form();
ValueForm integer_form(uint64_t low, uint64_t high);
ValueForm number_form(const FieldRange& range);
ValueForm word_form(const std::vector<std::string>& words);
ValueForm list_form(const ValueForm& element);
ValueForm either_form(const ValueForm& one, const ValueForm& other);
ValueForm optional_form(const ValueForm& form);  // null is allowed too, as if the key were absent

// What only a person can say of a key, given where it is read.
struct KeyText {
  std::string meaning = {};             // a sentence without its full stop
  std::string unit = {};                // "samples"; empty where there is none
  std::string absent = {};              // what holds without the key, where the value that is left alone does not say it
  std::vector<std::string> words = {};  // of a text: the right ones, where another check than the read refuses the rest
};

struct KeyNote {
  std::string path;  // "optimizer.lr"
  ValueForm form;
  nlohmann::json default_value;  // what is left alone where the key is absent; null: nothing
  KeyText text;
};

struct KeyNotes {
  std::vector<KeyNote> keys;                                // as they were read, each once
  std::set<std::string> required;                           // paths
  std::map<std::string, std::vector<std::string>> allowed;  // by an object's path: its keys, where every other one is refused

  void add(KeyNote note);  // the first note of a path stays
};

}  // namespace reprise
