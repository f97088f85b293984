// Plants faults in the text of PTX, line by line. A mutation has a name, a change of a line, and a
// flag that states whether each change gives its own mutant.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "tests/ports/ptx/ptx_cases.h"

namespace reprise::test {

// Returns the changed line; none if this change does not apply to the line.
using Change = std::optional<std::string> (*)(const std::string& line);

struct Mutation {
  const char* name;
  Change change;
  bool each;  // true: a mutant for each line that the change applies to; false: one mutant with all lines changed
};

inline std::vector<std::string> operands_of(const std::string& line) {
  std::vector<std::string> operands;
  for (size_t at = line.find_first_of("%0123456789-", line.find_first_of(" \t", line.find_first_not_of(" \t")));
       at != std::string::npos;) {
    const size_t end = line.find_first_of(",;}|] ", at);
    operands.push_back(line.substr(at, end - at));
    at = line.find_first_of("%0123456789-", end);
  }
  return operands;
}
inline bool has(const std::string& line, const char* what) { return line.find(what) != std::string::npos; }
inline std::optional<std::string> replaced(const std::string& line, const std::string& from, const std::string& to) {
  const size_t at = line.find(from);
  if (at == std::string::npos) return std::nullopt;
  return line.substr(0, at) + to + line.substr(at + from.size());
}
inline std::optional<std::string> swapped(const std::string& line, const char* opcode, size_t first, size_t second) {
  if (!has(line, opcode)) return std::nullopt;
  std::vector<std::string> operands = operands_of(line);
  const std::string a = operands.at(first), b = operands.at(second);
  if (a == b) return std::nullopt;
  const size_t begin = line.find(opcode);
  std::string text = line;
  // Positions of the operands in the text.
  std::vector<size_t> places;
  size_t at = text.find_first_of(" \t", begin);
  for (const std::string& operand : operands) {
    at = text.find(operand, at);
    places.push_back(at);
    at += operand.size();
  }
  const size_t low = std::min(first, second), high = std::max(first, second);
  text.replace(places[high], operands[high].size(), operands[low]);
  text.replace(places[low], operands[low].size(), operands[high]);
  return text;
}

inline const std::string& text_of(const std::string& file) {
  for (const ptx::PtxFile& each : files()) {
    if (each.name == file) return each.text;
  }
  static const std::string kNone;
  return kNone;
}

// Returns the text of the file with the mutation applied to every line of its kernels.
inline std::string mutated_file(const std::string& file, const Mutation& mutation) {
  const std::string& text = text_of(file);
  std::string mutated;
  size_t changes = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t next = std::min(text.find('\n', at), text.size() - 1) + 1;
    const std::string line = text.substr(at, next - at);
    const std::optional<std::string> changed = line[0] == '\t' ? mutation.change(line) : std::nullopt;
    changes += changed.has_value();
    mutated += changed.value_or(line);
    at = next;
  }
  EXPECT_GT(changes, 0u) << mutation.name << " changes nothing in " << file;
  return mutated;
}

}  // namespace reprise::test
