// A file of JSON values, one a line (JSONL).
#pragma once

#include "tools/formats/record_file.h"

namespace reprise {

class JsonLines : public RecordFile {
 public:
  // Finds the lines; those that hold nothing but blanks are none. Throws UserError as open_records does.
  explicit JsonLines(const std::string& path);
  nlohmann::ordered_json read(uint64_t n) const override;
};

}  // namespace reprise
