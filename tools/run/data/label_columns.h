// The columns of a table: first the inputs of a sample, then its labels. A pair has two inputs; so
// has a row of two texts. Tables of pictures and tables of texts have the same kinds of labels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/files/formats/record_file.h"
#include "tools/run/data/images.h"

namespace reprise {

// The usual names of input columns. They are used if the recipe names no columns and the table has
// them.
struct UsualColumns {
  const char *first = "", *second = "";
};
constexpr UsualColumns kTextColumns = {"text", "text_pair"};

// True if `columns` columns are two texts and their labels, for a net that reads both texts in one
// row.
bool are_texts_of_one_row(const Recipe& recipe, size_t columns);

// The columns that a recipe uses: those that it names, inputs first; otherwise all columns of the
// first record, in its order. Two texts of one row are two columns that the recipe names, or the
// columns with the usual names.
// The labels have the form of label_form. For numbers, or labels that are true or false, there is a
// column for each; an empty field means no label. For classes there is one column. For pairs there
// is one column with a number, or none.
// If every class in the training's table is an integer below the net's number of classes (1.0
// counts as 1), a class is its number. Otherwise classes are in the order of sort_class_names.
// Throws UserError with the line.
class LabelColumns {
 public:
  // Reads all records. `input` is the word for an input in messages. If no column has a usual name,
  // the first column is the input.
  LabelColumns(const Recipe& recipe, const RecordFile& table, const char* input, const UsualColumns& usual = {});

  // Returns the names of the classes, or of the label columns.
  const std::vector<std::string>& names() const { return names_; }
  // Returns the labels of record n, in the order of the file.
  const void* labels_of(uint64_t n) const { return labels_.data() + n * form_.bytes(); }
  // Returns the inputs of all records, one record after another. column_of(input) returns the name
  // of an input's column.
  const std::vector<std::string>& inputs() const { return inputs_; }
  uint64_t inputs_of_sample() const { return inputs_of_sample_; }
  bool are_one_row() const { return are_one_row_; }  // true if the two inputs are texts that the net reads in one row
  const std::string& column_of(uint64_t input) const { return columns_[input % inputs_of_sample_]; }

 private:
  void name_classes(const Recipe& recipe, const RecordFile& table);
  std::string class_text(const std::string& field) const;
  void read_record(const RecordFile& table, uint64_t n);
  float number_of(const std::string& place, const std::string& column, const std::string& text) const;
  int32_t class_of(const std::string& place, const std::string& column, const std::string& text) const;

  const LabelForm form_;
  const TargetRange range_;
  const std::vector<std::string> columns_;  // the input columns first
  const bool are_one_row_;
  const size_t inputs_of_sample_;
  bool are_whole_ = false;  // true if every class is an integer, possibly written with a zero fraction
  std::vector<std::string> names_, inputs_;
  std::vector<unsigned char> labels_;
};

}  // namespace reprise
