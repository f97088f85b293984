// The JSON results of `reprise schedule` (schedule_command.h).
#include "tools/plan/schedule/schedule_command.h"

#include <chrono>
#include <fstream>
#include <stdexcept>

#include "tools/files/io/error.h"
#include "tools/plan/schedule/given_schedule.h"
#include "tools/plan/schedule/revolve.h"
#include "tools/plan/schedule/two_level_steps.h"

namespace reprise {
namespace {

using nlohmann::ordered_json;

constexpr uint64_t kMaxSteps = 1000000000;

void refuse_if(bool given, const UnitChainRequest& request, const char* parameter) {
  if (!given) return;
  throw UserError("schedule: --" + std::string(parameter) + ": strategy \"" + request.strategy + "\" takes none",
                  UserError::kUsage);
}

ordered_json answer_revolve(const UnitChainRequest& request) {
  refuse_if(request.ram.has_value(), request, "ram");
  refuse_if(request.disk.has_value(), request, "disk");
  refuse_if(request.write_cost.has_value(), request, "write-cost");
  refuse_if(request.read_cost.has_value(), request, "read-cost");
  if (!request.slots) throw UserError("schedule: --slots: missing; revolve on --steps needs it", UserError::kUsage);
  return {{"extra_forwards", revolve_extra_forwards(request.steps, *request.slots)}};
}

ordered_json answer_hrevolve(const UnitChainRequest& request) {
  refuse_if(request.slots.has_value(), request, "slots");
  if (!request.ram) throw UserError("schedule: --ram: missing; h-revolve on --steps needs it", UserError::kUsage);
  return {{"makespan", two_level_makespan({.steps = request.steps,
                                           .ram_slots = *request.ram,
                                           .disk_slots = request.disk.value_or(0),
                                           .write_cost = request.write_cost.value_or(0),
                                           .read_cost = request.read_cost.value_or(0)})}};
}

}  // namespace

ordered_json action_as_json(const Action& action) {
  switch (action.kind) {
    case ActionKind::kAdvance:
      return {{"action", "advance"}, {"first", action.first}, {"last", action.last}, {"residue_mode", action.choice}};
    case ActionKind::kRecord: return {{"action", "record"}, {"link", action.first}, {"tape", action.choice}};
    case ActionKind::kBackward: return {{"action", "backward"}, {"link", action.first}};
    case ActionKind::kDrop: return {{"action", "drop"}, {"boundary", action.first}};
    case ActionKind::kWrite: return {{"action", "write"}, {"boundary", action.first}};
    case ActionKind::kRead: return {{"action", "read"}, {"boundary", action.first}};
  }
  return {};
}

ScheduleAnswer answer_schedule(const Chain& chain, const ScheduleRequest& request, const LayoutOf& layout_of) {
  const auto start = std::chrono::steady_clock::now();
  ScheduleAnswer answer{.schedule = make_schedule(chain, request), .json = {}};
  const std::chrono::duration<double> solve_time = std::chrono::steady_clock::now() - start;
  const Schedule& plan = answer.schedule;
  LayoutFigures figures;
  if (plan.feasible) figures = layout_of(chain, plan.actions);
  const auto if_feasible = [&](auto value) { return plan.feasible ? ordered_json(value) : ordered_json(); };
  answer.json = {{"feasible", plan.feasible},
                 {"makespan", if_feasible(plan.makespan)},
                 {"peak_bytes", if_feasible(plan.peak_bytes)},
                 {"packed_bytes", if_feasible(figures.packed_bytes)},
                 {"move_bytes", if_feasible(figures.move_bytes)},
                 {"disk_bytes", if_feasible(plan.disk_bytes)},
                 {"solve_seconds", solve_time.count()},
                 {"smallest_memory", plan.smallest_memory > 0 ? ordered_json(plan.smallest_memory) : ordered_json()}};
  return answer;
}

ScheduleAnswer answer_check(const Chain& chain, const std::string& file, const CheckBounds& bounds,
                            const DiskLevel& disk, const LayoutOf& layout_of) {
  const GivenSchedule given = read_given_schedule(file, chain);
  const Simulation walked = prove_given_schedule(file, chain, given, disk);
  ScheduleAnswer answer;
  answer.schedule = {.feasible = walked.peak_bytes <= bounds.memory_bytes.value_or(UINT64_MAX) &&
                                 walked.disk_bytes <= bounds.disk_bytes.value_or(UINT64_MAX),
                     .actions = given.actions,
                     .makespan = walked.makespan,
                     .peak_bytes = walked.peak_bytes,
                     .disk_bytes = walked.disk_bytes};
  std::optional<LayoutFigures> figures;
  try {
    figures = layout_of(chain, given.actions);
  } catch (const std::logic_error&) {  // the schedule is valid, but its actions are not nested
  }
  answer.json = {{"valid", true},
                 {"feasible", answer.schedule.feasible},
                 {"actions", given.texts.size()},
                 {"makespan", walked.makespan},
                 {"extra_forward_cost", walked.makespan / store_all_cost(chain) - 1},
                 {"peak_bytes", walked.peak_bytes},
                 {"packed_bytes", figures ? ordered_json(figures->packed_bytes) : ordered_json()},
                 {"move_bytes", figures ? ordered_json(figures->move_bytes) : ordered_json()},
                 {"disk_bytes", walked.disk_bytes}};
  return answer;
}

ordered_json answer_unit_chain(const UnitChainRequest& request) {
  if (request.steps < 1 || request.steps > kMaxSteps)
    throw UserError("schedule: --steps: must be from 1 to 1000000000");
  if (request.strategy == "revolve") return answer_revolve(request);
  if (request.strategy == "h-revolve") return answer_hrevolve(request);
  throw UserError("schedule: --strategy: on --steps one of revolve, h-revolve, not \"" + request.strategy + "\"");
}

bool is_actions_file(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    const ordered_json action = ordered_json::parse(line, nullptr, false);
    const bool has_place =
        action.is_object() && (action.contains("first") || action.contains("link") || action.contains("boundary"));
    if (!has_place || !action.begin().value().is_string() || action.begin().key() != "action") return false;
  }
  return true;
}

std::string actions_as_jsonl(const std::vector<Action>& actions) {
  std::string text;
  for (const Action& action : actions) text += action_as_json(action).dump() + "\n";
  return text;
}

}  // namespace reprise
