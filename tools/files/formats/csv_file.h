// A file of comma-separated values (RFC 4180) whose first line names the columns. It is read record
// by record. A record is an object of strings, one for each column that has a name.
#pragma once

#include "tools/files/formats/record_file.h"

namespace reprise {

// Returns `text` as a cell of a CSV file, quoted if RFC 4180 requires it. If a spreadsheet would
// run the text as a formula, an apostrophe is put in front. Such a text is not a number; after
// possible apostrophes it begins with = + - @, one of their full-width forms, a tab or a line end.
// To get the text back, a reader removes one apostrophe before such a beginning.
std::string csv_cell(const std::string& text);

// A CSV file as records.
class CsvFile : public RecordFile {
 public:
  // Finds the records. A record may contain line ends inside quotes; lines of blanks are skipped.
  // Blanks around a column's name are removed and its letters made lower-case; a column without a
  // name is not read. Throws UserError like open_records(). Also throws UserError if two columns
  // have the same name, no column has a name, or a quoted field does not end.
  explicit CsvFile(const std::string& path);
  // Returns record n. Throws UserError if it has more or fewer fields than the header, has a quote
  // at a wrong place, or is not UTF-8.
  nlohmann::ordered_json read(uint64_t n) const override;

 private:
  void find_records();
  void read_header();
  std::vector<std::string> columns_;
};

}  // namespace reprise
