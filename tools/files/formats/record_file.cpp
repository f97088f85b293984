// Code that all formats of records share, and the choice of a file's format.
#include "tools/files/formats/record_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/files/formats/csv_file.h"
#include "tools/files/formats/json_array.h"
#include "tools/files/formats/json_lines.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/file_kind.h"

namespace reprise {
namespace {

constexpr char kByteOrderMark[] = "\xef\xbb\xbf";

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// Returns the first character that is not blank; 0 if there is none.
char first_character(const InputFile& file) {
  constexpr uint64_t kPiece = uint64_t{1} << 12;
  std::string piece;
  for (uint64_t at = 0; at < file.bytes(); at += kPiece) {
    piece.resize(std::min(kPiece, file.bytes() - at));
    file.read(at, piece.data(), piece.size());
    const size_t begin = at == 0 && piece.starts_with(kByteOrderMark) ? sizeof kByteOrderMark - 1 : 0;
    for (size_t i = begin; i < piece.size(); ++i) {
      if (!is_blank(piece[i])) return piece[i];
    }
  }
  return 0;
}

// Converts "(line L, column C)" in a parser's message about one record to a place in the file. The
// record begins at line `line` of the file, or at an unknown line if `line` is 0. If the fault is
// in the record's first line, L is removed, and C stays relative to the record's beginning.
std::string in_lines_of_file(std::string reason, const std::string& place, uint64_t line) {
  const std::string words = "(line ";
  const size_t at = reason.rfind(words);
  if (at == std::string::npos || at < place.size() || reason.find_first_of("0123456789", at) != at + words.size())
    return reason;
  size_t digits = 0;
  const uint64_t own = std::stoull(reason.substr(at + words.size()), &digits);
  const size_t end = at + words.size() + digits;
  if (own > 1 && line > 0) return reason.replace(at + words.size(), digits, std::to_string(line + own - 1));
  if (own == 1 && reason.compare(end, 2, ", ") == 0) return reason.replace(at, end + 2 - at, "(");
  return reason;
}

}  // namespace

uint64_t RecordFile::after_mark() const {
  constexpr uint64_t kBytes = sizeof kByteOrderMark - 1;
  char first[kBytes] = {};
  if (bytes() < kBytes) return 0;
  file_.read(0, first, kBytes);
  return std::string(first, kBytes) == kByteOrderMark ? kBytes : 0;
}

std::string RecordFile::text(const Record& record) const {
  std::string text(record.end - record.begin, '\0');
  file_.read(record.begin, text.data(), text.size());
  return text;
}

void RecordFile::add(const Record& record) {
  if (record.end - record.begin > kLongest)
    throw UserError(place_of_line(record.line) + ": longer than " + std::to_string(kLongest >> 20) + " MiB");
  records_.push_back(record);
}

std::unique_ptr<RecordFile> open_records(const std::string& path) {
  constexpr const char* kWanted = "JSON values one a line, a JSON list, or CSV with a header, in UTF-8";
  const InputFile file(path);
  refuse_other_kinds(file, kWanted);
  const char first = first_character(file);
  if (first == 0)
    throw UserError(path + ": holds no samples: JSON values one a line, a JSON list, or CSV with a header are wanted");
  if (first == '{') return std::make_unique<JsonLines>(path);
  if (first == '[') return std::make_unique<JsonArray>(path);
  return std::make_unique<CsvFile>(path);
}

nlohmann::ordered_json parse_json_record(const std::string& text, const std::string& place, uint64_t line) {
  try {
    return parse_ordered_json(text, place);
  } catch (const UserError& error) {
    throw UserError(in_lines_of_file(error.what(), place, line));
  }
}

}  // namespace reprise
