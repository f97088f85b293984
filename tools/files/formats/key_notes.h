// Notes about the keys of a format: form, default, meaning. A reader makes the notes while it
// reads. The format's documentation and JSON Schema are made from the notes, so that they always
// match the reader.
#pragma once

#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace reprise {

// The range in which a number must be.
struct FieldRange {
  double low, high;
  bool low_open = false, high_open = false;  // true: the end itself is not allowed
};
constexpr FieldRange kAnyNumber = {-std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
constexpr FieldRange kNonNegative = {0, kAnyNumber.high};
constexpr FieldRange kPositive = {.low = 0, .high = kAnyNumber.high, .low_open = true};
// Ranges that the proof of a plan allows (lib/attributes.h). They are already checked when the
// recipe is read.
constexpr FieldRange kEpsilon = {1e-37, 1};  // a positive f32
constexpr FieldRange kFactor = {0, 1e6};
constexpr FieldRange kBelowOne = {.low = 0, .high = 1, .high_open = true};
constexpr int kMaxCount = std::numeric_limits<int>::max();

// The form of a value: the words after "must be" in an error message, and its JSON Schema.
struct ValueForm {
  std::string words;
  nlohmann::json schema;
};
ValueForm bool_form();
ValueForm string_form();
ValueForm path_form();
ValueForm bytes_form(uint64_t minimum);
ValueForm object_form();
ValueForm null_form();
ValueForm integer_form(uint64_t low, uint64_t high);
ValueForm number_form(const FieldRange& range);
ValueForm word_form(const std::vector<std::string>& words);
ValueForm list_form(const ValueForm& element);
ValueForm either_form(const ValueForm& one, const ValueForm& other);
ValueForm optional_form(const ValueForm& form);  // null is allowed, too, and counts as absent

// The description of a key: text that the code itself does not contain. It is given where the key
// is read.
struct KeyText {
  std::string meaning = {};             // a sentence without a full stop
  std::string unit = {};                // for example "samples"; empty if there is none
  std::string absent = {};              // what happens if the key is absent; empty if the default already states it
  std::vector<std::string> words = {};  // allowed values of a string key if another check than read() enforces them
};

// The note about one key.
struct KeyNote {
  std::string path;  // for example "optimizer.lr"
  ValueForm form;
  nlohmann::json default_value;  // the value if the key is absent; null if there is no default
  KeyText text;
};

// All notes about one format.
struct KeyNotes {
  std::vector<KeyNote> keys;       // each once, in the order in which they were first read
  std::set<std::string> required;  // paths of the required keys
  // Path of an object -> its allowed keys, if other keys are refused.
  std::map<std::string, std::vector<std::string>> allowed;

  void add(KeyNote note);  // keeps only the first note for each path
};

}  // namespace reprise
