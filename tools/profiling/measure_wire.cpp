// See measure_wire.h.
#include "tools/profiling/measure_wire.h"

#include <sys/wait.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>

#include "tools/formats/error.h"
#include "tools/formats/json_fields.h"

namespace reprise {

namespace {

std::string who_says(const std::string& command) { return "--peers " + json_shown(command); }

struct WirePoint {
  double bytes = 0, seconds = 0;
};

// The normal equations of sum (message + byte * x - t)^2 / t. Where one of the two would be negative it is 0, and the other fits alone.
Wire fitted_wire(uint64_t ranks, const std::vector<WirePoint>& points) {
  double ones = 0, cross = 0, squares = 0, right_ones = 0, right_bytes = 0;
  for (const auto& [x, t] : points) {
    ones += 1 / t, cross += x / t, squares += x * x / t;
    right_ones += 1, right_bytes += x;
  }
  const double determinant = ones * squares - cross * cross;
  Wire wire = {ranks, right_ones / ones, 0};
  if (determinant <= 0) return wire;  // one size alone
  wire.byte_seconds = (ones * right_bytes - cross * right_ones) / determinant;
  wire.message_seconds = (squares * right_ones - cross * right_bytes) / determinant;
  if (wire.byte_seconds < 0) return {ranks, right_ones / ones, 0};
  if (wire.message_seconds < 0) return {ranks, 0, right_bytes / squares};
  return wire;
}

}  // namespace

Wire wire_of(const std::string& printed, const std::string& command) {
  nlohmann::json json;
  try {
    json = parse_json(printed, who_says(command));
  } catch (const UserError&) {
    throw UserError(who_says(command) + ": must print what build/peers_mpi prints, one JSON value, not " + json_shown(printed));
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
    throw UserError(who_says(command) + ": ended with " + (has_ended ? "status " + std::to_string(WEXITSTATUS(status)) : "a signal") +
                    "; it must start build/peers_mpi in at least two processes, as \"mpirun -np 2 -H a,b build/peers_mpi\"");
  }
  return wire_of(printed, command);
}

}  // namespace reprise
