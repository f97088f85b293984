// Traces judged by Perfetto's own trace processor, by SQL (trace_processor.js).
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace reprise::test {

// Why it cannot be asked here: the Makefile has not got it, or there is no Node to run it. "" where it can.
std::string trace_processor_missing();

// What it finds, where slices of the category "step" are no rows: by the process's name
// {"slices", "seconds", "stages": {category: n}, "most", "overlaps"}: the rows, their sum, how many of each category, the highest live bytes of the
// arena, rows that overlap on their queue; and "steps", {"n", "seconds"}. Throws std::runtime_error with its words, also where its importer
// complains of the file.
std::map<std::string, nlohmann::json> trace_figures(const std::string& trace);

}  // namespace reprise::test
