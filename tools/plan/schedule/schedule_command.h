// The results of `reprise schedule` as JSON values (tools/COMMANDS.md), and the file of actions
// that it writes. The command line is parsed elsewhere, so that tests and other programs call these
// functions.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/files/io/output.h"
#include "tools/plan/schedule/chain.h"
#include "tools/plan/schedule/schedule.h"

namespace reprise {

struct LayoutFigures {
  uint64_t packed_bytes = 0;
  uint64_t move_bytes = 0;
};
using LayoutOf = std::function<LayoutFigures(const Chain&, const std::vector<Action>&)>;

struct ScheduleAnswer {
  Schedule schedule;
  // feasible, makespan, peak_bytes, packed_bytes, move_bytes, disk_bytes, solve_seconds,
  // smallest_memory
  nlohmann::ordered_json json;
};

// Returns the schedule and its figures. For an infeasible schedule all figures but solve_seconds
// and smallest_memory are null, and the command exits with status 3. smallest_memory is null if
// unknown.
ScheduleAnswer answer_schedule(const Chain& chain, const ScheduleRequest& request, const LayoutOf& layout_of);

// Limits of answer_check(); unset: none.
struct CheckBounds {
  std::optional<uint64_t> memory_bytes = {}, disk_bytes = {};
};
// Proves and prices the schedule of another program in `file` (given_schedule.h). Returns
//   {"valid", "feasible", "actions", "makespan", "extra_forward_cost", "peak_bytes",
//    "packed_bytes", "move_bytes", "disk_bytes"}
// `schedule.feasible` is true if the peak and the bytes on disk are within the bounds.
// `packed_bytes` and `move_bytes` are null if the actions are not nested, because layout_chain()
// then has no layout. Throws UserError if the schedule is invalid.
ScheduleAnswer answer_check(const Chain& chain, const std::string& file, const CheckBounds& bounds,
                            const DiskLevel& disk, const LayoutOf& layout_of);

// A chain of equal steps. Absent fields were not given on the command line.
struct UnitChainRequest {
  std::string strategy;
  uint64_t steps = 0;
  std::optional<uint64_t> slots = {};               // revolve
  std::optional<uint64_t> ram = {}, disk = {};      // h-revolve; disk 0 if absent
  std::optional<double> write_cost = {}, read_cost = {};  // h-revolve; 0 if absent
};

// Returns {"extra_forwards"} for revolve and {"makespan"} for h-revolve. Throws UserError for
// another strategy, or a parameter that is missing or belongs to another strategy.
nlohmann::ordered_json answer_unit_chain(const UnitChainRequest& request);

// Returns one of
//   {"action": "advance", "first", "last", "residue_mode" (-1: none)},
//   {"action": "record", "link", "tape"}, {"action": "backward", "link"},
//   {"action": "drop", "boundary"}, {"action": "write", "boundary"},
//   {"action": "read", "boundary"}.
nlohmann::ordered_json action_as_json(const Action& action);
// Returns a text with one object of action_as_json() on each line.
std::string actions_as_jsonl(const std::vector<Action>& actions);

// True if each line of the file is an action in the form of action_as_json().
bool is_actions_file(const std::string& path);
constexpr OutputKind kActionsFile = {"actions", is_actions_file, true};

}  // namespace reprise
