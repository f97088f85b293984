// Pictures and their numbers, or their labels that are true or false, from a table: a CSV file whose first column names the picture.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tools/data/images.h"
#include "tools/data/picture_set.h"
#include "tools/data/sources.h"
#include "tools/formats/csv_file.h"
#include "tools/formats/error.h"
#include "tools/formats/json_text.h"

namespace reprise {
namespace {

class Table {
 public:
  Table(const Recipe& recipe, const std::string& path) : file_(path), folder_(std::filesystem::path(path).parent_path()), form_(label_form(recipe)),
        is_binary_(describe_model(recipe.model).target == ModelDescription::Target::kLabels) {
    for (uint64_t n = 0; n < file_.size(); ++n) read_record(n);
    set_.others = {path};
  }

  LabelledPictures take() {
    set_.write_labels = [targets = std::move(targets_), count = form_.count()](uint64_t n, unsigned char* labels) {
      std::memcpy(labels, targets.data() + n * count, count * sizeof(float));
    };
    return std::move(set_);
  }

 private:
  void read_record(uint64_t n) {
    const nlohmann::ordered_json record = file_.read(n);
    const auto refuse = [&](const std::string& reason) { throw UserError(file_.place(n) + ": " + reason); };
    if (record.size() != form_.count() + 1) {
      refuse("has " + std::to_string(record.size()) + " columns; must have a picture's path and " + std::to_string(form_.count()) + " numbers, as many as the net writes");
    }
    const size_t first = targets_.size();
    for (auto column = record.begin(); column != record.end(); ++column) {
      const std::string text = column.value();
      if (column != record.begin()) {
        targets_.push_back(number_of(n, column.key(), text));
      } else if (text.empty()) {
        refuse(json_shown(column.key()) + " is empty; must be a picture's path");
      } else {
        set_.files.push_back((folder_ / text).string());
      }
      if (n == 0 && column != record.begin()) set_.class_names.push_back(column.key());
    }
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(set_.files.back(), ignored)) refuse(set_.files.back() + " is no file; must be a picture, its path beside the table's");
    set_.labelled.push_back(form_.labelled(targets_.data() + first));
  }

  // Nothing is no number.
  float number_of(uint64_t n, const std::string& column, const std::string& text) const {
    if (text.find_first_not_of(" \t") == std::string::npos) return std::nanf("");
    char* end = nullptr;
    const float number = std::strtof(text.c_str(), &end);
    while (*end == ' ' || *end == '\t') ++end;
    const bool is_right = *end == 0 && std::isfinite(number) && (!is_binary_ || (number >= 0 && number <= 1));
    if (is_right) return number;
    throw UserError(file_.place(n) + ": " + json_shown(column) + " is " + json_shown(text) + "; must be a number" + (is_binary_ ? " from 0 to 1" : "") + ", or empty for none");
  }

  CsvFile file_;
  std::filesystem::path folder_;
  LabelForm form_;
  bool is_binary_;
  std::vector<float> targets_;  // of all records
  LabelledPictures set_;
};

}  // namespace

std::unique_ptr<Dataset> open_table(const Recipe& recipe, Split split, DataLook* /*look*/) {
  const std::string& path = split == Split::kTraining ? recipe.data.path : recipe.data.eval_path;
  if (path.empty()) return nullptr;
  return make_picture_set(recipe, split, path, Table(recipe, path).take());
}

}  // namespace reprise
