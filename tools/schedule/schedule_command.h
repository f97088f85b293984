// What `reprise schedule` answers, as JSON values (tools/FORMATS.md), and the file of actions that it writes.
// The command line itself is elsewhere: tests and other programs ask here.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/formats/output.h"
#include "tools/schedule/chain.h"
#include "tools/schedule/schedule.h"

namespace reprise {

struct LayoutFigures {
  uint64_t packed_bytes = 0;
  uint64_t move_bytes = 0;
};
using LayoutOf = std::function<LayoutFigures(const Chain&, const std::vector<Action>&)>;

struct ScheduleAnswer {
  Schedule schedule;
  nlohmann::ordered_json json;  // feasible, makespan, peak_bytes, packed_bytes, move_bytes, disk_bytes, solve_seconds, smallest_memory
};

// Infeasible: the figures are null; the program exits with 3. smallest_memory is null where it is not known.
ScheduleAnswer answer_schedule(const Chain& chain, const ScheduleRequest& request, const LayoutOf& layout_of);

// A chain of equal steps. Absent fields were not given on the command line.
struct UnitChainRequest {
  std::string strategy;
  uint64_t steps = 0;
  std::optional<uint64_t> slots = {};               // revolve
  std::optional<uint64_t> ram = {}, disk = {};      // h-revolve; disk 0 if absent
  std::optional<double> write_cost = {}, read_cost = {};  // h-revolve; 0 if absent
};

// revolve: {"extra_forwards"}; h-revolve: {"makespan"}. Throws UserError for another strategy, a missing or a foreign parameter.
nlohmann::ordered_json answer_unit_chain(const UnitChainRequest& request);

// {"action": "advance", "first", "last", "residue_mode" (-1: none)}, {"action": "record", "link", "tape"},
// {"action": "backward", "link"}, {"action": "drop", "boundary"}, {"action": "write", "boundary"}, {"action": "read", "boundary"}.
nlohmann::ordered_json action_as_json(const Action& action);
// One of them a line.
std::string actions_as_jsonl(const std::vector<Action>& actions);

// Returns whether each line of the file is such an action.
bool is_actions_file(const std::string& path);
constexpr OutputKind kActionsFile = {"actions", is_actions_file, true};

}  // namespace reprise
