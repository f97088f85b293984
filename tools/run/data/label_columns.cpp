// See label_columns.h.
#include "tools/run/data/label_columns.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/run/pictures/class_folders.h"

namespace reprise {
namespace {

std::string without_blanks(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t"), last = text.find_last_not_of(" \t");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

// Returns how many columns are labels: none for pairs whose loss reads no number.
size_t label_columns(const Recipe& recipe) {
  return describe_model(recipe.model).target == ModelDescription::Target::kPair ? 0 : label_form(recipe).count();
}

// Describes the columns that a record must have, for messages.
std::string wanted_columns(const Recipe& recipe, const char* input) {
  const bool are_pairs = describe_model(recipe.model).inputs_of_sample() == 2;
  const size_t labels = label_columns(recipe);
  std::string wanted = input;
  if (are_pairs) wanted += std::string(labels == 0 ? " and " : ", ") + input + " of the other of the pair";
  if (label_form(recipe).stored == DType::kI32) return wanted + " and its class";
  if (labels == 0) return wanted;
  return wanted + (are_pairs ? ", and how alike they are"
                             : " and " + std::to_string(labels) + " numbers, as many as the net writes");
}

// Moves the column `name` to the front. Returns false if there is no such column.
bool put_in_front(std::vector<std::string>& columns, const char* name) {
  const auto found = std::find(columns.begin(), columns.end(), name);
  const bool is_there = name[0] != 0 && found != columns.end();
  if (is_there) std::rotate(columns.begin(), found, found + 1);
  return is_there;
}

// Returns the columns that a sample uses: its inputs, then its labels.
std::vector<std::string> columns_of(const Recipe& recipe, const RecordFile& table, const char* input,
                                    const UsualColumns& usual) {
  const nlohmann::ordered_json record = table.read(0);
  if (!record.is_object())
    throw UserError(table.place(0) + ": must be an object of columns, not " + json_shown(nlohmann::json(record)));
  std::vector<std::string> columns;
  for (const auto& [name, unused] : record.items()) columns.push_back(name);
  for (const std::string& name : recipe.data.columns) {
    if (!record.contains(name))
      throw UserError(table.place(0) + ": data.columns names " + json_shown(name) + "; it has " + quoted_list(columns));
  }
  const bool has_second = put_in_front(columns, usual.second);
  put_in_front(columns, usual.first);
  if (has_second && columns[0] == usual.second && columns.size() > 1) std::swap(columns[0], columns[1]);
  if (!recipe.data.columns.empty()) columns = recipe.data.columns;
  const size_t count = static_cast<size_t>(describe_model(recipe.model).inputs_of_sample()) + label_columns(recipe);
  const bool may_be_one_row = has_second || !recipe.data.columns.empty();
  if (columns.size() == count || (may_be_one_row && are_texts_of_one_row(recipe, columns.size()))) return columns;
  const bool may_have_second = usual.second[0] != 0 && are_texts_of_one_row(recipe, columns.size());
  const std::string second = may_have_second ? ", where two of them are texts of one row, or call the second " +
                                                   json_shown(std::string(usual.second))
                                             : "";
  const std::string others =
      recipe.data.columns.empty() && columns.size() > count ? "; name those with data.columns" + second : "";
  const bool is_parted_otherwise = columns.size() == 1 && columns[0].find_first_of(";\t") != std::string::npos;
  throw UserError(table.place(0) + ": has " + std::to_string(columns.size()) + " columns; must have " +
                  wanted_columns(recipe, input) + others +
                  (is_parted_otherwise ? "; commas part the fields of CSV, no semicolons or tabs" : ""));
}

// Returns a field in the form that CSV would have: numbers of JSON as text, null as "".
std::string field_of(const nlohmann::ordered_json& record, const std::string& place, const std::string& column) {
  if (!record.is_object() || !record.contains(column))
    throw UserError(place + ": has no " + json_shown(column) +
                    ", which the first record has; null says that there is none");
  const nlohmann::ordered_json& value = record.at(column);
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
  if (value.is_number()) return value.dump();
  throw UserError(place + ": " + json_shown(column) + " is " + json_shown(nlohmann::json(value)) +
                  "; must be a text or a number");
}

// True for the number of a class in plain digits: "7", but not "07" or "+7".
bool is_class_number(const std::string& name, int classes) {
  if (name.empty() || name.size() > 9 || name.find_first_not_of("0123456789") != std::string::npos) return false;
  return (name.size() == 1 || name[0] != '0') && std::stoi(name) < classes;
}

// Returns the integer in a text: "7" for "7" and for "7.0", which some programs write in columns
// with empty fields. Returns "" for every other text.
std::string whole_number(const std::string& text) {
  const size_t sign = text.starts_with('-') ? 1 : 0, point = text.find('.');
  const std::string digits = text.substr(sign, point == std::string::npos ? point : point - sign);
  const bool is_whole = point == std::string::npos ||
                        (point + 1 < text.size() && text.find_first_not_of('0', point + 1) == std::string::npos);
  return is_whole && !digits.empty() && digits.find_first_not_of("0123456789") == std::string::npos
             ? text.substr(0, point)
             : "";
}

}  // namespace

bool are_texts_of_one_row(const Recipe& recipe, size_t columns) {
  const ModelDescription model = describe_model(recipe.model);
  return model.input == ModelDescription::Input::kTexts && !model.has_pairs() && columns == 2 + label_columns(recipe);
}

LabelColumns::LabelColumns(const Recipe& recipe, const RecordFile& table, const char* input, const UsualColumns& usual)
    : form_(label_form(recipe)),
      range_(target_range(recipe)),
      columns_(columns_of(recipe, table, input, usual)),
      are_one_row_(are_texts_of_one_row(recipe, columns_.size())),
      inputs_of_sample_(are_one_row_ ? 2 : static_cast<size_t>(describe_model(recipe.model).inputs_of_sample())) {
  if (form_.stored == DType::kI32) {
    table.path() == recipe.data.path ? name_classes(recipe, table)
                                     : name_classes(recipe, *open_records(recipe.data.path));
  }
  labels_.resize(table.size() * form_.bytes());
  for (uint64_t n = 0; n < table.size(); ++n) read_record(table, n);
}

void LabelColumns::name_classes(const Recipe& recipe, const RecordFile& table) {
  const int classes = class_count(recipe);
  std::vector<std::string> fields;
  for (uint64_t n = 0; n < table.size(); ++n)
    fields.push_back(without_blanks(field_of(table.read(n), table.place(n), columns_[inputs_of_sample_])));
  are_whole_ = std::all_of(fields.begin(), fields.end(),
                           [](const std::string& field) { return field.empty() || !whole_number(field).empty(); });
  std::set<std::string> names;
  for (uint64_t n = 0; n < table.size(); ++n) {
    const std::string name = class_text(fields[n]);
    if (!name.empty()) names.insert(name);
    if (names.size() > static_cast<size_t>(classes)) {
      throw UserError(table.place(n) + ": " + json_shown(name) + " is class " + std::to_string(names.size()) +
                      " of the table, and the net tells " + std::to_string(classes) + " apart");
    }
  }
  const bool are_numbers = std::all_of(names.begin(), names.end(),
                                       [classes](const std::string& name) { return is_class_number(name, classes); });
  if (!are_numbers) {
    names_.assign(names.begin(), names.end());
    return sort_class_names(names_);
  }
  for (int n = 0; n < classes; ++n) names_.push_back(std::to_string(n));
}

std::string LabelColumns::class_text(const std::string& field) const {
  const std::string whole = are_whole_ ? whole_number(field) : "";
  return whole.empty() ? field : whole;
}

void LabelColumns::read_record(const RecordFile& table, uint64_t n) {
  const nlohmann::ordered_json record = table.read(n);
  const std::string place = table.place(n);
  unsigned char* to = labels_.data() + n * form_.bytes();
  const auto store = [&to](auto label) {
    std::memcpy(to, &label, sizeof label);
    to += sizeof label;
  };
  for (size_t c = 0; c < columns_.size(); ++c) {
    const std::string text = field_of(record, place, columns_[c]);
    if (c < inputs_of_sample_) {
      inputs_.push_back(text);
    } else if (form_.stored == DType::kI32) {
      store(class_of(place, columns_[c], class_text(without_blanks(text))));
    } else {
      if (n == 0 && (inputs_of_sample_ == 1 || are_one_row_)) names_.push_back(columns_[c]);
      store(number_of(place, columns_[c], text));
    }
  }
  if (columns_.size() == inputs_of_sample_) store(1.0f);
}

// Returns the number in the text; NaN if the text is empty.
float LabelColumns::number_of(const std::string& place, const std::string& column, const std::string& text) const {
  if (without_blanks(text).empty()) return std::nanf("");
  char* end = nullptr;
  const float number = std::strtof(text.c_str(), &end);
  while (*end == ' ' || *end == '\t') ++end;
  const bool is_whole = end == text.c_str() + text.size() && text.find_first_of("xX") == std::string::npos;
  if (is_whole && range_.has(number)) return number;
  const bool is_any = range_.high > 1;
  throw UserError(place + ": " + json_shown(column) + " is " + json_shown(text) + "; must be a number" +
                  (is_any ? "" : std::string(" ") + range_.words) + ", or empty for none");
}

// Returns the class that the text names; kIgnoredLabel if the text is empty.
int32_t LabelColumns::class_of(const std::string& place, const std::string& column, const std::string& text) const {
  if (text.empty()) return kIgnoredLabel;
  const auto found = std::find(names_.begin(), names_.end(), text);
  if (found != names_.end()) return static_cast<int32_t>(found - names_.begin());
  throw UserError(place + ": " + json_shown(column) + " is " + json_shown(text) +
                  ", which is no class of the training's table");
}

}  // namespace reprise
