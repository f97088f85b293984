// See trace_processor.h.
#include "tests/interfaces/trace_processor.h"

#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "tests/runtime/programs/process.h"

namespace reprise::test {

using nlohmann::json;

namespace {

std::string folder() { return build_folder() + "/data/perfetto"; }

// Returns for each query a list of rows. A row is an object whose keys are the columns.
std::vector<json> query_trace(const std::string& trace, const std::vector<std::string>& queries) {
  std::vector<std::string> command = {
      "/bin/sh", "-c", "exec node \"$@\"", "node", "tests/interfaces/trace_processor.js", folder(), trace};
  command.insert(command.end(), queries.begin(), queries.end());
  const ProcessResult result = run(command);
  if (result.status != 0) throw std::runtime_error(trace + ": " + result.err);
  std::vector<json> answers;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) answers.push_back(json::parse(line));
  return answers;
}

}  // namespace

std::string trace_processor_missing() {
  if (!std::filesystem::exists(folder() + "/engine_bundle.js"))
    return "Perfetto's trace processor is not here (`make " + folder() + "` fetches it)";
  if (run({"/bin/sh", "-c", "command -v node"}).status != 0)
    return "there is no Node.js, which runs Perfetto's trace processor";
  return "";
}

std::map<std::string, json> trace_figures(const std::string& trace) {
  const std::string slices =
      "(select p.name as process, s.* from slice s join thread_track t on s.track_id = t.id join thread using (utid) "
      "join process p using (upid))";
  const std::string rows = slices + " where category != 'step'";
  const std::vector<json> answers =
      query_trace(trace,
                  {"select process, count(*) as slices, sum(dur) / 1e9 as seconds from " + rows + " group by process",
                   "select p.name as process, max(value) as most from counter join process_counter_track t on track_id "
                   "= t.id join process p using (upid)"
                   " where t.name = 'arena live bytes' group by p.name",
                   "select process, sum(next < ends) as overlaps from (select process, ts + dur as ends, lead(ts) over "
                   "(partition by track_id order by ts, dur) as next from " +
                       rows + ") group by process",
                   "select process, category, count(*) as n from " + rows + " group by process, category",
                   "select process, count(*) as n, sum(dur) / 1e9 as seconds from " + slices +
                       " where category = 'step' group by process",
                   "select name, value from stats where severity != 'info' and value > 0"});
  if (!answers[5].empty()) throw std::runtime_error(trace + ": " + answers[5].dump());
  std::map<std::string, json> figures;
  for (int i = 0; i < 3; ++i) {
    for (const json& row : answers[i]) figures[row["process"]].update(row);
  }
  for (const json& row : answers[3]) figures[row["process"]]["stages"][row["category"].get<std::string>()] = row["n"];
  for (const json& row : answers[4]) figures[row["process"]]["steps"] = row;
  return figures;
}

}  // namespace reprise::test
