// See plan_trace.h.
#include "tools/plan/audit/plan_trace.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "tools/plan/audit/rows_text.h"

namespace reprise {

using nlohmann::json;

namespace {

double seconds_of(const json& row, const TraceRates& rates) {
  if (row["seconds"].is_number()) return row["seconds"].get<double>();
  return std::max(row["flops"].get<double>() / rates.flops_per_second,
                  row["bytes"].get<double>() / rates.bytes_per_second);
}

// Rounds to whole nanoseconds. Perfetto stores whole nanoseconds, and drops slices that overlap
// because of a rounding error.
double nanoseconds(double seconds) { return std::round(1e9 * seconds); }

json named(const char* what, uint64_t process, uint64_t thread, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}};
}

// Appends the events of a program that starts at `start` seconds. Returns the time at which it
// ends.
double add_program(const json& manifest, const json& program, uint64_t process, double start, const TraceRates& rates,
                   json& events) {
  const std::string name = program["name"].get<std::string>();
  const uint64_t times = program["times"].get<uint64_t>();
  events.push_back(
      named("process_name", process, 0, name + (times == 1 ? "" : ", " + std::to_string(times) + " times a step")));
  const json rows = named_rows(manifest, name);
  std::set<uint64_t> queues;
  for (size_t r = 0; r < rows.size(); ++r) {
    const json& row = program["rows"][r];
    const uint64_t queue = row["queue"].get<uint64_t>();
    if (queues.insert(queue).second)
      events.push_back(named("thread_name", process, queue, queue == 0 ? "compute" : "transfers"));
    const double end = start + seconds_of(row, rates);
    const json details = {{"row", r},
                          {"why", rows[r]["why"]},
                          {"stage", row["stage"]},
                          {"reads", rows[r]["reads"]},
                          {"writes", rows[r]["writes"]},
                          {"flops", row["flops"]},
                          {"bytes", row["bytes"]},
                          {"predicted", row["seconds"].is_number()}};
    events.push_back({{"ph", "X"},
                      {"name", rows[r]["op"].get<std::string>() + " " + row["link"].get<std::string>()},
                      {"cat", row["stage"]},
                      {"pid", process},
                      {"tid", queue},
                      {"ts", nanoseconds(start) / 1e3},
                      {"dur", (nanoseconds(end) - nanoseconds(start)) / 1e3},
                      {"args", details}});
    events.push_back({{"ph", "C"},
                      {"name", "arena"},
                      {"pid", process},
                      {"tid", 0},
                      {"ts", nanoseconds(start) / 1e3},
                      {"args", {{"live bytes", row["live_bytes"]}}}});
    start = end;
  }
  return start;
}

}  // namespace

json plan_trace(const json& manifest, const TraceRates& rates) {
  json events = json::array();
  double end = 0;
  for (size_t p = 0; p < manifest["programs"].size(); ++p)
    end = add_program(manifest, manifest["programs"][p], p + 1, end, rates, events);
  const bool measured = manifest["predicted_seconds"].is_number();
  return {{"traceEvents", events},
          {"displayTimeUnit", "ms"},
          {"otherData",
           {{"plan_hash", manifest["plan_hash"]},
            {"planned_bytes", manifest["planned_bytes"]},
            {"times", measured ? "a profile's, predicted"
                               : "of flops and bytes, at the rates of lib/PLANNING.md section 4.1"}}}};
}

}  // namespace reprise
