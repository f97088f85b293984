// A file with one JSON value in each line (JSONL).
#pragma once

#include "tools/files/formats/record_file.h"

namespace reprise {

class JsonLines : public RecordFile {
 public:
  // Finds the lines; skips lines that contain only blanks. Throws UserError like open_records().
  explicit JsonLines(const std::string& path);
  nlohmann::ordered_json read(uint64_t n) const override;
};

}  // namespace reprise
