// Finds the lines of a JSONL file.
#include "tools/files/formats/json_lines.h"

#include <nlohmann/json.hpp>

#include "tools/files/io/error.h"

namespace reprise {

JsonLines::JsonLines(const std::string& path) : RecordFile(path) {
  uint64_t begin = after_mark(), line = 1;
  bool is_blank = true;
  const auto end_line = [&](uint64_t end) {
    if (!is_blank) add({begin, end, line});
    begin = end + 1;
    ++line;
    is_blank = true;
  };
  visit_bytes(begin, [&](uint64_t at, char c) {
    if (c == '\n') {
      end_line(at);
    } else if (c != ' ' && c != '\t' && c != '\r') {
      is_blank = false;
    }
  });
  end_line(bytes());
  if (records_.empty()) throw UserError(path + ": holds no samples: JSON values are wanted, one a line");
}

nlohmann::ordered_json JsonLines::read(uint64_t n) const { return parse_json_record(text(records_[n]), place(n)); }

}  // namespace reprise
