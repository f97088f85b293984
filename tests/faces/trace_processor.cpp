// See trace_processor.h.
#include "tests/faces/trace_processor.h"

#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "tests/runtime/process.h"

namespace reprise::test {

using nlohmann::json;

namespace {

std::string folder() { return build_folder() + "/data/perfetto"; }

// A list of rows for each query, each row an object by column.
std::vector<json> query_trace(const std::string& trace, const std::vector<std::string>& queries) {
  std::vector<std::string> command = {"/bin/sh", "-c", "exec node \"$@\"", "node", "tests/faces/trace_processor.js", folder(), trace};
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
  if (!std::filesystem::exists(folder() + "/engine_bundle.js")) return "Perfetto's trace processor is not here (`make " + folder() + "` fetches it)";
  if (run({"/bin/sh", "-c", "command -v node"}).status != 0) return "there is no Node.js, which runs Perfetto's trace processor";
  return "";
}

json trace_figures(const std::string& trace, const std::string& process) {
  const auto slices = [&](const std::string& condition) {
    return "(select s.* from slice s join thread_track t on s.track_id = t.id join thread using (utid) join process p using (upid) where p.name = '" + process +
           "' and s.category " + condition + " 'step')";
  };
  const std::string rows = slices("!="), steps = slices("=");
  const std::vector<json> answers = query_trace(
      trace, {"select count(*) as slices, sum(dur) / 1e9 as seconds from " + rows,
              "select max(value) as most from counter join process_counter_track t on track_id = t.id join process p using (upid) where p.name = '" + process +
                  "' and t.name = 'arena live bytes'",
              "select count(*) as overlaps from (select ts + dur as ends, lead(ts) over (partition by track_id order by ts, dur) as next from " + rows + ") where next < ends",
              "select category, count(*) as n from " + rows + " group by category",
              "select count(*) as n, sum(dur) / 1e9 as seconds from " + steps,
              "select name, value from stats where severity != 'info' and value > 0"});
  json figures = answers[0][0];
  figures.update(answers[1][0]);
  figures.update(answers[2][0]);
  figures["stages"] = answers[3];
  figures["steps"] = answers[4][0];
  figures["complaints"] = answers[5];
  return figures;
}

}  // namespace reprise::test
