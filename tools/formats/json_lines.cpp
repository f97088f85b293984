// Where the lines of a JSONL file are, and their values.
#include "tools/formats/json_lines.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tools/formats/error.h"
#include "tools/formats/json_text.h"

namespace reprise {

JsonLines::JsonLines(const std::string& path) : file_(path) {
  constexpr uint64_t kPiece = uint64_t{1} << 16;
  std::vector<char> piece(std::min(kPiece, file_.bytes()));
  uint64_t begin = 0, line = 1;
  bool is_blank = true;
  const auto end_line = [&](uint64_t end) {
    if (!is_blank) add_line(begin, end, line);
    begin = end + 1;
    ++line;
    is_blank = true;
  };
  for (uint64_t at = 0; at < file_.bytes(); at += kPiece) {
    const uint64_t count = std::min(kPiece, file_.bytes() - at);
    file_.read(at, piece.data(), count);
    for (uint64_t i = 0; i < count; ++i) {
      if (piece[i] == '\n') {
        end_line(at + i);
      } else if (piece[i] != ' ' && piece[i] != '\t' && piece[i] != '\r') {
        is_blank = false;
      }
    }
  }
  end_line(file_.bytes());
  if (lines_.empty()) throw UserError(path + ": holds no samples: JSON values are wanted, one a line");
}

void JsonLines::add_line(uint64_t begin, uint64_t end, uint64_t line) {
  if (end - begin > kLongest) throw UserError(file_.path() + ", line " + std::to_string(line) + ": longer than " + std::to_string(kLongest >> 20) + " MiB");
  lines_.push_back({begin, end, line});
}

nlohmann::ordered_json JsonLines::read(uint64_t n) const {
  std::string text(lines_[n].end - lines_[n].begin, '\0');
  file_.read(lines_[n].begin, text.data(), text.size());
  return parse_json_line(text, place(n));
}

nlohmann::ordered_json parse_json_line(const std::string& text, const std::string& place) {
  try {
    parse_json(text, place);  // for its refusals: the other parser neither puts them on one line nor sees a key twice
  } catch (const UserError& error) {
    std::string reason = error.what();
    const std::string of_text = "(line 1, column ";
    if (const size_t at = reason.rfind(of_text); at != std::string::npos) reason.replace(at, of_text.size(), "(column ");
    throw UserError(reason);
  }
  return nlohmann::ordered_json::parse(text);
}

}  // namespace reprise
