// Fuzzes CSV files. An accepted record that is written in quotes and read again must be equal.
// Users' tables may contain anything.
#include <nlohmann/json.hpp>

#include "tests/fuzz/fuzz.h"
#include "tools/files/formats/csv_file.h"

namespace {

std::string quoted(const std::string& field) {
  std::string text = "\"";
  for (const char c : field) text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return text + "\"";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  static const fuzz::MemoryFile memory, again;
  memory.hold(data, size);
  fuzz::answers_or_refuses([&] {
    const CsvFile table(memory.path());
    uint64_t before = 0;
    for (uint64_t n = 0; n < table.size(); ++n) {
      fuzz::require(table.begin(n) >= before && !table.place(n).empty(), "records follow each other");
      before = table.begin(n) + 1;
      fuzz::answers_or_refuses([&] {
        const nlohmann::ordered_json record = table.read(n);
        std::string header, fields;
        for (const auto& [name, value] : record.items()) {
          header += (header.empty() ? "" : ",") + quoted(name);
          fields += (fields.empty() ? "" : ",") + quoted(value.get<std::string>());
        }
        const std::string text = header + "\r\n" + fields + "\r\n";
        again.hold(reinterpret_cast<const uint8_t*>(text.data()), text.size());
        fuzz::require(CsvFile(again.path()).read(0) == record, "a record is read back as it was");
      });
    }
  });
  return 0;
}
