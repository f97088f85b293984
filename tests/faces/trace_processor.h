// Traces judged by Perfetto's own trace processor, by SQL (trace_processor.js).
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace reprise::test {

// Why it cannot be asked here: the Makefile has not got it, or there is no Node to run it. "" where it can.
std::string trace_processor_missing();

// What it finds in the process of that name, where slices of the category "step" are no rows:
// {"slices", "seconds", "stages": [{"category", "n"}], "most"}: the rows, their sum, how many of each category, the highest live bytes of the arena;
// {"overlaps", "complaints"}: rows that overlap on their queue, and what the importer says of the file; {"steps": {"n", "seconds"}}.
// Throws std::runtime_error with its words.
nlohmann::json trace_figures(const std::string& trace, const std::string& process);

}  // namespace reprise::test
