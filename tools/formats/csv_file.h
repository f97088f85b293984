// A file of comma-separated values (RFC 4180) whose first line names the columns, read record by record.
// Here because tables of questions and answers come so. A record is an object of texts, one for each column that has a name.
#pragma once

#include "tools/formats/record_file.h"

namespace reprise {

// Returns `text` as a cell of a CSV file: quoted where RFC 4180 asks for it, and with an apostrophe in front where a spreadsheet would run it
// as a formula. That is a text which begins, behind apostrophes of its own, with = + - @, one of their wide forms, a tab or a line's end, and is
// no number. So whoever takes one apostrophe away in front of such a beginning has the text again.
std::string csv_cell(const std::string& text);

class CsvFile : public RecordFile {
 public:
  // Finds the records, of which one may span lines inside of quotes; lines that hold nothing but blanks are none. Names of columns are taken
  // without the blanks around them and with small letters; a column without a name is not read. Throws UserError as open_records does:
  // where two columns have one name, none has one, or a quoted field does not end.
  explicit CsvFile(const std::string& path);
  // Throws UserError where the record has more or fewer fields than the header, a quote where none can be, or is not UTF-8.
  nlohmann::ordered_json read(uint64_t n) const override;

 private:
  void find_records();
  void read_header();
  std::vector<std::string> columns_;
};

}  // namespace reprise
