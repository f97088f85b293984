// A file of records, each a JSON object, which can be read in any order. Three formats are
// supported, because users have samples in all three: one JSON value per line, a JSON list, and CSV
// with a header. The files may be larger than memory, and callers do not depend on the format.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/files/io/input_file.h"

namespace reprise {

// The common interface of the three formats.
class RecordFile {
 public:
  static constexpr uint64_t kLongest = uint64_t{64} << 20;  // maximum bytes of a record

  virtual ~RecordFile() = default;

  uint64_t size() const { return records_.size(); }
  const std::string& path() const { return file_.path(); }
  uint64_t begin(uint64_t n) const { return records_[n].begin; }  // returns the offset of record n in the file
  uint64_t line(uint64_t n) const { return records_[n].line; }    // returns the line in which record n begins, from 1
  // Returns where record n begins, for messages: "FILE, line 7". Lines are counted as in an editor.
  virtual std::string place(uint64_t n) const { return place_of_line(records_[n].line); }

  // Returns record n, with its keys in the order of the file. Throws UserError with the place if
  // the record is wrong.
  virtual nlohmann::ordered_json read(uint64_t n) const = 0;

 protected:
  struct Record {
    uint64_t begin, end, line;
  };
  explicit RecordFile(const std::string& path) : file_(path) {}

  // Calls visit(at, c) for every byte of the file, from offset `from` on.
  template <typename Visit>
  void visit_bytes(uint64_t from, const Visit& visit) const {
    std::vector<char> piece(kPiece);
    for (uint64_t at = from; at < file_.bytes(); at += kPiece) {
      const uint64_t count = file_.bytes() - at < kPiece ? file_.bytes() - at : kPiece;
      file_.read(at, piece.data(), count);
      for (uint64_t i = 0; i < count; ++i) visit(at + i, piece[i]);
    }
  }

  uint64_t bytes() const { return file_.bytes(); }
  uint64_t after_mark() const;  // returns the offset of the text: after the byte order mark if there is one
  std::string text(const Record& record) const;
  std::string place_of_line(uint64_t line) const { return path() + ", line " + std::to_string(line); }
  void add(const Record& record);  // throws UserError if it is longer than kLongest

  std::vector<Record> records_;

 private:
  static constexpr uint64_t kPiece = uint64_t{1} << 16;
  InputFile file_;
};

// Opens a file and finds all its records. The first character decides the format: "{" begins JSON
// lines, "[" a JSON list, and everything else is CSV. Throws UserError if the file cannot be read,
// has no record, has a record that is too long, or does not have the format.
std::unique_ptr<RecordFile> open_records(const std::string& path);

// Returns the value of one record. `place` is its name in messages. `line` is the line of the file
// in which the text begins, or 0 if it is unknown. Throws UserError if the text is not JSON, not
// UTF-8, or has a duplicate key.
nlohmann::ordered_json parse_json_record(const std::string& text, const std::string& place, uint64_t line = 0);

}  // namespace reprise
