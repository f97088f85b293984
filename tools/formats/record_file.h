// A file of records, each a JSON object, read one by one at any place: JSON values one a line, a JSON list, or CSV with a header.
// Here because people keep samples in all three, the files may be larger than memory, and whoever reads samples need not know which it is.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/formats/input_file.h"

namespace reprise {

class RecordFile {
 public:
  static constexpr uint64_t kLongest = uint64_t{64} << 20;  // bytes of a record

  virtual ~RecordFile() = default;

  uint64_t size() const { return records_.size(); }
  const std::string& path() const { return file_.path(); }
  uint64_t begin(uint64_t n) const { return records_[n].begin; }  // the byte of the file at which record n begins
  uint64_t line(uint64_t n) const { return records_[n].line; }    // in which it begins, from 1
  // "FILE, line 7": where record n begins, lines counted as an editor does.
  virtual std::string place(uint64_t n) const { return place_of_line(records_[n].line); }

  // Keys keep their order. Throws UserError with the place where the record alone is at fault.
  virtual nlohmann::ordered_json read(uint64_t n) const = 0;

 protected:
  struct Record {
    uint64_t begin, end, line;
  };
  explicit RecordFile(const std::string& path) : file_(path) {}

  // visit(at, c) with every byte of the file from `from` on.
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
  uint64_t after_mark() const;  // where the text begins: behind a byte order mark, which some programs write
  std::string text(const Record& record) const;
  std::string place_of_line(uint64_t line) const { return path() + ", line " + std::to_string(line); }
  void add(const Record& record);  // throws UserError where it is too long

  std::vector<Record> records_;

 private:
  static constexpr uint64_t kPiece = uint64_t{1} << 16;
  InputFile file_;
};

// Known by its first character: "{" begins JSON values one a line, "[" a list of them, anything else is CSV. Finds every record. Throws
// UserError where the file cannot be read, has no record, one that is too long, or is not of its format.
std::unique_ptr<RecordFile> open_records(const std::string& path);

// One record's value; `place` is what messages call it. Throws UserError where it is no JSON, no UTF-8, or has a key twice; `line`: the one
// in which the text begins, where its lines are those of a file.
nlohmann::ordered_json parse_json_record(const std::string& text, const std::string& place, uint64_t line = 0);

}  // namespace reprise
