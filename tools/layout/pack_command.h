// `reprise pack PROBLEM.csv [--capacity N] [-o OUT.csv] --json` (tools/FORMATS.md): the file format and the report.
// The columns are those of other people's allocation benchmarks, so that packers can be compared on the same files.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/layout/pack.h"

namespace reprise {

struct PackProblem {
  std::vector<std::string> ids;
  std::vector<PackBuffer> buffers;  // parallel to ids
};

// Columns id, lower, upper, size, in any order; others are ignored. A buffer lives in [lower, upper). `capacity` 0: none.
// Throws UserError that names file, line and column: a missing column or field, a number that is none, negative or too
// large, lower >= upper, an id given twice, a buffer larger than the capacity.
PackProblem parse_pack_problem(const std::string& text, const std::string& file, uint64_t capacity);

// id,lower,upper,size,offset
std::string packed_csv(const PackProblem& problem, const std::vector<uint64_t>& offsets);

struct PackRequest {
  std::string problem_path = {};
  uint64_t capacity = 0;    // 0: as low as can be
  std::string output_path = {};  // empty: none. Written whole or not at all, and only if the packing is feasible
  double seconds = 60;      // the search gives up after this
};

// Reads, packs and writes. {"feasible", "packed", "lower_bound", "seconds", "proven"}; "packed" is null if nothing that fits
// was found; not feasible is exit status 3 to the caller.
nlohmann::json run_pack(const PackRequest& request);

// The report for a person, on one line.
std::string describe_pack(const nlohmann::json& report, uint64_t capacity);

}  // namespace reprise
