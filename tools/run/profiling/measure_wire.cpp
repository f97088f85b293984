// See measure_wire.h.
#include "tools/run/profiling/measure_wire.h"

#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>

#include "tools/files/formats/json_fields.h"
#include "tools/files/io/error.h"

namespace reprise {

namespace {

std::string who_says(const std::string& command) { return "--peers " + json_shown(command); }

struct WirePoint {
  double bytes = 0, seconds = 0;
};

// Fits a line to the points: seconds = message seconds + bytes * seconds per byte. The line passes
// through the point with the fewest bytes. The seconds per byte minimise the sum of error^2 /
// seconds over all points. No coefficient is negative.
Wire fitted_wire(uint64_t ranks, const std::vector<WirePoint>& points) {
  const auto less = [](const WirePoint& a, const WirePoint& b) { return a.bytes < b.bytes; };
  const WirePoint first = *std::min_element(points.begin(), points.end(), less);
  double products = 0, squares = 0;
  for (const auto& [bytes, seconds] : points) {
    products += (bytes - first.bytes) * (seconds - first.seconds) / seconds;
    squares += (bytes - first.bytes) * (bytes - first.bytes) / seconds;
  }
  const double byte = squares > 0 ? std::max(0.0, products / squares) : 0;
  return {ranks, std::max(0.0, first.seconds - byte * first.bytes), byte};
}

}  // namespace

Wire wire_of(const std::string& printed, const std::string& command) {
  nlohmann::json json;
  try {
    json = parse_json(printed, who_says(command));
  } catch (const UserError&) {
    throw UserError(who_says(command) + ": must print what build/peers_mpi prints, one JSON value, not " +
                    json_shown(printed));
  }
  const JsonFields fields(json, {who_says(command)}, "");
  uint64_t ranks = 0;
  for (const char* key : {"ranks", "shares"}) (void)fields.at(key);
  fields.read("ranks", ranks, 2, UINT32_MAX);
  std::vector<WirePoint> points;
  for (size_t n = 0; n < fields.list_at("shares").size(); ++n) {
    const JsonFields share = fields.element("shares", n);
    const double bytes = static_cast<double>(share.integer_in("bytes", share.at("bytes"), 0, uint64_t{1} << 53));
    const double seconds = share.number_in("seconds", share.at("seconds"), {1e-12, std::numeric_limits<double>::max()});
    points.push_back({bytes, seconds / static_cast<double>(ranks - 1)});
  }
  if (points.size() < 2) fields.refuse("shares", "must have at least two sizes");
  return fitted_wire(ranks, points);
}

Wire measure_wire(const std::string& command) {
  std::fflush(nullptr);
  FILE* const output = ::popen(command.c_str(), "r");
  if (output == nullptr) throw UserError(who_says(command) + ": cannot be started: " + std::strerror(errno));
  std::string printed;
  char part[4096];
  for (size_t length = 0; (length = std::fread(part, 1, sizeof part, output)) > 0;) printed.append(part, length);
  const int status = ::pclose(output);
  if (status != 0) {
    const bool has_ended = WIFEXITED(status);
    throw UserError(
        who_says(command) + ": ended with " +
        (has_ended ? "status " + std::to_string(WEXITSTATUS(status)) : "a signal") +
        "; it must start build/peers_mpi in at least two processes, as \"mpirun -np 2 -H a,b build/peers_mpi\"");
  }
  return wire_of(printed, command);
}

}  // namespace reprise
