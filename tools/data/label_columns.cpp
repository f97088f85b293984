// See label_columns.h.
#include "tools/data/label_columns.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "tools/formats/error.h"
#include "tools/formats/json_text.h"

namespace reprise {
namespace {

std::string without_blanks(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t"), last = text.find_last_not_of(" \t");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

// "7", and neither "07" nor "+7".
bool is_class_number(const std::string& name, int classes) {
  if (name.empty() || name.size() > 9 || name.find_first_not_of("0123456789") != std::string::npos) return false;
  return (name.size() == 1 || name[0] != '0') && std::stoi(name) < classes;
}

}  // namespace

LabelColumns::LabelColumns(const Recipe& recipe, const CsvFile& table, const char* sample)
    : form_(label_form(recipe)), is_binary_(describe_model(recipe.model).target == ModelDescription::Target::kLabels), sample_(sample) {
  if (form_.stored == DType::kI32) {
    table.path() == recipe.data.path ? name_classes(recipe, table) : name_classes(recipe, CsvFile(recipe.data.path));
  }
  labels_.resize(table.size() * form_.bytes());
  for (uint64_t n = 0; n < table.size(); ++n) read_record(table, n);
}

void LabelColumns::name_classes(const Recipe& recipe, const CsvFile& table) {
  const int classes = class_count(recipe);
  std::set<std::string> names;
  for (uint64_t n = 0; n < table.size(); ++n) {
    const nlohmann::ordered_json record = table.read(n);
    if (record.size() != 2) throw UserError(table.place(n) + ": has " + std::to_string(record.size()) + " columns; must have " + sample_ + " and its class");
    const std::string name = without_blanks(record.back());
    if (!name.empty()) names.insert(name);
    if (names.size() > static_cast<size_t>(classes)) {
      throw UserError(table.place(n) + ": " + json_shown(name) + " is class " + std::to_string(names.size()) + " of the table, and the net tells " +
                      std::to_string(classes) + " apart");
    }
  }
  const bool are_numbers = std::all_of(names.begin(), names.end(), [classes](const std::string& name) { return is_class_number(name, classes); });
  if (!are_numbers) return names_.assign(names.begin(), names.end());
  for (int n = 0; n < classes; ++n) names_.push_back(std::to_string(n));
}

void LabelColumns::read_record(const CsvFile& table, uint64_t n) {
  const nlohmann::ordered_json record = table.read(n);
  const std::string place = table.place(n);
  const uint64_t count = form_.count();
  if (record.size() != count + 1) {
    const std::string labels = form_.stored == DType::kI32 ? " and its class" : " and " + std::to_string(count) + " numbers, as many as the net writes";
    throw UserError(place + ": has " + std::to_string(record.size()) + " columns; must have " + sample_ + labels);
  }
  unsigned char* to = labels_.data() + n * form_.bytes();
  for (auto column = record.begin(); column != record.end(); ++column) {
    const std::string text = column.value();
    if (column == record.begin()) {
      sample_column_ = column.key();
      samples_.push_back(text);
      continue;
    }
    if (form_.stored == DType::kI32) {
      const int32_t number = class_of(place, column.key(), without_blanks(text));
      std::memcpy(to, &number, sizeof number);
    } else {
      if (n == 0) names_.push_back(column.key());
      const float number = number_of(place, column.key(), text);
      std::memcpy(to, &number, sizeof number);
    }
    to += sizeof(float);
  }
}

// Nothing is no number.
float LabelColumns::number_of(const std::string& place, const std::string& column, const std::string& text) const {
  if (without_blanks(text).empty()) return std::nanf("");
  char* end = nullptr;
  const float number = std::strtof(text.c_str(), &end);
  while (*end == ' ' || *end == '\t') ++end;
  const bool is_right = *end == 0 && std::isfinite(number) && (!is_binary_ || (number >= 0 && number <= 1));
  if (is_right) return number;
  throw UserError(place + ": " + json_shown(column) + " is " + json_shown(text) + "; must be a number" + (is_binary_ ? " from 0 to 1" : "") + ", or empty for none");
}

// Nothing is no class.
int32_t LabelColumns::class_of(const std::string& place, const std::string& column, const std::string& text) const {
  if (text.empty()) return kIgnoredLabel;
  const auto found = std::find(names_.begin(), names_.end(), text);
  if (found != names_.end()) return static_cast<int32_t>(found - names_.begin());
  throw UserError(place + ": " + json_shown(column) + " is " + json_shown(text) + ", which is no class of the training's table");
}

}  // namespace reprise
