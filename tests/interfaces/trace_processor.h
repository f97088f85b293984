// Queries traces with SQL through Perfetto's own trace processor (trace_processor.js).
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace reprise::test {

// Returns why the trace processor cannot run: the Makefile has not fetched it, or Node.js is
// missing. Returns "" if it can run.
std::string trace_processor_missing();

// Returns figures about the trace file `trace`, by the name of the process:
// {"slices", "seconds", "stages": {category: n}, "most", "overlaps", "steps": {"n", "seconds"}}
// A slice is a row, unless its category is "step".
//
// "slices", "seconds" and "stages": the number of rows, the sum of their durations, and their
// number in each category. "most": the maximum of the arena's live bytes. "overlaps": the number of
// rows that overlap another on their queue. "steps": the number of steps and their total duration.
//
// Throws std::runtime_error with the trace processor's message if it fails or finds a problem in
// the file.
std::map<std::string, nlohmann::json> trace_figures(const std::string& trace);

}  // namespace reprise::test
