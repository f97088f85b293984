// `reprise pack PROBLEM.csv [--capacity N] [-o OUT.csv] --json` (tools/COMMANDS.md): the file
// format and the report. The columns are those of published allocation benchmarks, so that packers
// can be compared on the same files.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/plan/layout/pack.h"

namespace reprise {

struct PackProblem {
  std::vector<std::string> ids;
  std::vector<PackBuffer> buffers;  // parallel to ids
};

// Parses csv with the columns id, lower, upper and size, in any order; other columns are ignored. A
// buffer lives in [lower, upper). `capacity` 0: none. Throws UserError that names file, line and
// column for: a missing column or field; a value that is not a number, negative or too large; lower
// >= upper; an id given twice; a buffer larger than the capacity.
PackProblem parse_pack_problem(const std::string& text, const std::string& file, uint64_t capacity);

// Returns csv with the columns id, lower, upper, size and offset, and one line for each buffer.
std::string packed_csv(const PackProblem& problem, const std::vector<uint64_t>& offsets);

struct PackRequest {
  std::string problem_path = {};
  uint64_t capacity = 0;    // bytes; 0: the packing is as low as possible
  // Empty: no file. The file is written completely or not at all, and only if the packing is
  // feasible.
  std::string output_path = {};
  double seconds = 60;      // limit of the search
};

// Reads, packs and writes. Returns {"feasible", "packed", "lower_bound", "seconds", "proven"};
// "packed" is null if no packing that fits was found. The caller exits with status 3 if "feasible"
// is false.
nlohmann::json run_pack(const PackRequest& request);

// Returns the report as one line of text.
std::string describe_pack(const nlohmann::json& report, uint64_t capacity);

}  // namespace reprise
