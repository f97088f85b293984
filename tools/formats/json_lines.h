// A file of JSON values, one a line (JSONL), read line by line at any place.
// Here because conversations come in such files, which may be larger than memory.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/formats/input_file.h"

namespace reprise {

class JsonLines {
 public:
  static constexpr uint64_t kLongest = uint64_t{64} << 20;  // bytes of a line

  // Finds the lines; those that hold nothing but blanks are none. Throws UserError where the file cannot be read, where it has no line, or
  // one that is too long.
  explicit JsonLines(const std::string& path);

  uint64_t size() const { return lines_.size(); }
  const std::string& path() const { return file_.path(); }
  uint64_t begin(uint64_t n) const { return lines_[n].begin; }  // the byte of the file at which value n's line begins
  // "FILE, line 7": the line in which value n stands, counted as an editor does.
  std::string place(uint64_t n) const { return file_.path() + ", line " + std::to_string(lines_[n].line); }

  // Keys keep their order. Throws UserError with the place where the line is no JSON, no UTF-8, or has a key twice.
  nlohmann::ordered_json read(uint64_t n) const;

 private:
  struct Line {
    uint64_t begin, end, line;
  };
  void add_line(uint64_t begin, uint64_t end, uint64_t line);
  InputFile file_;
  std::vector<Line> lines_;
};

// One line's value; `place` is what messages call it.
nlohmann::ordered_json parse_json_line(const std::string& text, const std::string& place);

}  // namespace reprise
