// A file that is one JSON list, read element by element. Such files are as common and as large as
// JSONL, and a parser for the whole text would keep all of it in memory.
#pragma once

#include "tools/files/formats/record_file.h"

namespace reprise {

// A JSON list as records.
class JsonArray : public RecordFile {
 public:
  // Finds the elements only by brackets, commas and strings; read() checks their contents. Throws
  // UserError like open_records(). Also throws UserError if the list does not end, an element is
  // missing, or something follows the list.
  explicit JsonArray(const std::string& path);
  // Returns "FILE, record 3 (line 7)", because all records may be on one line.
  std::string place(uint64_t n) const override;
  nlohmann::ordered_json read(uint64_t n) const override;
};

}  // namespace reprise
