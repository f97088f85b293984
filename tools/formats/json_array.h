// A file that is one JSON list, read element by element.
// Here because such files are as common as JSONL and as large, and a parser of the whole would hold all of it in memory.
#pragma once

#include "tools/formats/record_file.h"

namespace reprise {

class JsonArray : public RecordFile {
 public:
  // Finds the elements by their brackets, commas and strings alone; what is in them is looked at when they are read. Throws UserError as
  // open_records does: where the list does not end, where an element is missing, or where something follows the list.
  explicit JsonArray(const std::string& path);
  std::string place(uint64_t n) const override;  // "FILE, record 3 (line 7)": a list may stand on one line
  nlohmann::ordered_json read(uint64_t n) const override;
};

}  // namespace reprise
