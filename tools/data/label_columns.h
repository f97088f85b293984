// The columns of a table that say what is to be learned of a sample, which stands in one of them; that of a pair in two, and so do two texts of
// which one row is made.
// Here because pictures and texts of a table have the same labels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/data/images.h"
#include "tools/formats/record_file.h"

namespace reprise {

// What a sample's columns are called where the recipe names none and there are such.
struct UsualColumns {
  const char *first = "", *second = "";
};
constexpr UsualColumns kTextColumns = {"text", "text_pair"};

// Whether so many columns are two texts, which the net reads in one row, and what is to be learned of them.
bool are_texts_of_one_row(const Recipe& recipe, size_t columns);

// The columns are those that the recipe names, the sample's first; else all that the first record has, in its order. As the net's loss wants
// them (label_form): K numbers or labels that are true or false, where an empty field is none; or one column, a class; of pairs one number, or
// no column at all. Two texts of one row are two columns that the recipe names, or those of the usual names.
// Where every class of the training's table is an integer from 0 on that the net has, a class is its number. Else classes have the order of
// their names. Throws UserError with the line.
class LabelColumns {
 public:
  // `input`: what a sample is, or each of a pair, for messages. Without one of the usual names the first column is it.
  LabelColumns(const Recipe& recipe, const RecordFile& table, const char* input, const UsualColumns& usual = {});

  // The names of the classes, or of the columns.
  const std::vector<std::string>& names() const { return names_; }
  // The labels of every record, as the file has them.
  const std::vector<unsigned char>& labels() const { return labels_; }
  const void* labels_of(uint64_t n) const { return labels_.data() + n * form_.bytes(); }
  // The inputs of each record, one after the other, and the names of their columns.
  const std::vector<std::string>& inputs() const { return inputs_; }
  uint64_t inputs_of_sample() const { return inputs_of_sample_; }
  bool are_one_row() const { return are_one_row_; }  // the two inputs of each record: texts that the net reads in one row
  const std::string& column_of(uint64_t input) const { return columns_[input % inputs_of_sample_]; }

 private:
  void name_classes(const Recipe& recipe, const RecordFile& table);
  void read_record(const RecordFile& table, uint64_t n);
  float number_of(const std::string& place, const std::string& column, const std::string& text) const;
  int32_t class_of(const std::string& place, const std::string& column, const std::string& text) const;

  const LabelForm form_;
  const TargetRange range_;
  const std::vector<std::string> columns_;  // the inputs' first
  const bool are_one_row_;
  const size_t inputs_of_sample_;
  std::vector<std::string> names_, inputs_;
  std::vector<unsigned char> labels_;
};

}  // namespace reprise
