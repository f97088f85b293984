// The table of strategies, and the steps that several of them share. Only this file lists all
// names: a new strategy is one file, and one line here.
#include "tools/plan/schedule/schedule.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "lib/assert.h"
#include "tools/files/io/error.h"
#include "tools/plan/schedule/simulate.h"
#include "tools/plan/schedule/strategy.h"

namespace reprise {
namespace {

enum class DiskUse : uint8_t { kNone, kAll, kChooses };  // kAll: puts all kept boundaries on disk

struct Strategy {
  const char* name;
  Schedule (*make)(const Chain&, const ScheduleRequest&);
  bool takes_k;
  bool takes_slots;
  DiskUse disk;
};

constexpr Strategy kStrategies[] = {
    {"none", schedule_none, false, false, DiskUse::kNone},
    {"every-k", schedule_every_k, true, false, DiskUse::kAll},
    {"sqrt", schedule_sqrt, true, false, DiskUse::kAll},
    {"chen", schedule_chen, false, false, DiskUse::kNone},
    {"chen-recursive", schedule_chen_recursive, true, false, DiskUse::kNone},
    {"revolve", schedule_revolve, false, true, DiskUse::kNone},
    {"multistage", schedule_multistage, false, false, DiskUse::kChooses},
    {"h-revolve", schedule_hrevolve, false, false, DiskUse::kChooses},
    {"optimal", schedule_optimal, false, false, DiskUse::kNone},
};

std::string joined_names() {
  std::string names;
  for (const Strategy& strategy : kStrategies) names += (names.empty() ? "" : ", ") + std::string(strategy.name);
  return names;
}

// Throws UserError if the strategy does not have the parameter. Value 0: the parameter was not
// given.
void require_parameter(const char* name, int value, bool is_taken, const ScheduleRequest& request) {
  if (value < 0) throw UserError("schedule: " + std::string(name) + ": must be at least 1");
  if (value > 0 && !is_taken)
    throw UserError("schedule: " + std::string(name) + ": strategy \"" + request.strategy + "\" takes no " + name);
}

void require_chain(const Chain& chain) {
  if (chain.links.empty()) throw UserError("chain: links: a chain has at least one link");
  for (const Link& link : chain.links) {
    if (link.tapes.empty()) throw UserError("chain: link \"" + link.name + "\": tapes: a link has at least one tape");
    if (link.residues.size() != chain.links[0].residues.size()) {
      throw UserError("chain: link \"" + link.name + "\": residues: every link lists the same number of modes");
    }
  }
  if (chain.links.back().boundary_bytes != 0)
    throw UserError("chain: last link: boundary_bytes: the loss has none, so 0");
}

}  // namespace

const std::vector<std::string>& strategy_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const Strategy& strategy : kStrategies) list.emplace_back(strategy.name);
    return list;
  }();
  return names;
}

bool takes_disk(const std::string& name) {
  return std::any_of(std::begin(kStrategies), std::end(kStrategies),
                     [&](const Strategy& s) { return name == s.name && s.disk != DiskUse::kNone; });
}

bool chooses_for_disk(const std::string& name) {
  return std::any_of(std::begin(kStrategies), std::end(kStrategies),
                     [&](const Strategy& s) { return name == s.name && s.disk == DiskUse::kChooses; });
}

Schedule make_schedule(const Chain& chain, const ScheduleRequest& request) {
  require_chain(chain);
  if (!request.starts.empty())
    return judge_plan(chain, segment_actions(chain, request.starts, request.disk.bytes > 0), request.memory_bytes,
                      request.disk);
  for (const Strategy& strategy : kStrategies) {
    if (request.strategy != strategy.name) continue;
    require_parameter("k", request.k, strategy.takes_k, request);
    require_parameter("slots", request.slots, strategy.takes_slots, request);
    if (request.disk.bytes > 0 && strategy.disk == DiskUse::kNone) {
      throw UserError("schedule: disk: strategy \"" + request.strategy + "\" takes none");
    }
    Schedule made = strategy.make(chain, request);
    REPRISE_ASSERT(!made.feasible || request.as_published || made.peak_bytes <= request.memory_bytes,
                   "a feasible schedule fits its memory");
    return made;
  }
  throw UserError("schedule: strategy: \"" + request.strategy + "\" is unknown; one of " + joined_names());
}

Schedule judge_plan(const Chain& chain, std::vector<Action> actions, uint64_t memory_bytes, const DiskLevel& disk) {
  const Simulation walked = simulate(chain, actions, disk);
  if (!walked.valid) {
    throw std::logic_error("a strategy made an invalid plan: action " + std::to_string(walked.fault_action) + " " +
                           walked.fault);
  }
  Schedule plan;
  if (walked.disk_bytes > disk.bytes) return plan;
  plan.smallest_memory = walked.peak_bytes;
  if (walked.peak_bytes > memory_bytes) return plan;
  plan.feasible = true;
  plan.actions = std::move(actions);
  plan.makespan = walked.makespan;
  plan.peak_bytes = walked.peak_bytes;
  plan.disk_bytes = walked.disk_bytes;
  return plan;
}

Schedule better_plan(Schedule a, Schedule b) {
  if (a.feasible != b.feasible) return a.feasible ? a : b;
  if (!a.feasible)
    return a.smallest_memory == 0 || (b.smallest_memory != 0 && b.smallest_memory < a.smallest_memory) ? b : a;
  return b.makespan < a.makespan ? b : a;
}

std::vector<Action> segment_actions(const Chain& chain, const std::vector<int>& starts, bool spilled) {
  REPRISE_ASSERT(!starts.empty() && starts[0] == 0, "the first segment begins at link 0");
  const auto is_spilled = [&](size_t s) { return spilled && s > 0 && s + 1 < starts.size(); };
  std::vector<Action> actions;
  for (size_t s = 1; s < starts.size(); ++s) {
    REPRISE_ASSERT(starts[s - 1] < starts[s] && starts[s] < chain.length(), "segments begin at links in rising order");
    actions.push_back({.kind = ActionKind::kAdvance, .first = starts[s - 1], .last = starts[s]});
    if (is_spilled(s - 1)) actions.push_back({.kind = ActionKind::kDrop, .first = starts[s - 1]});
    if (is_spilled(s)) actions.push_back({.kind = ActionKind::kWrite, .first = starts[s]});
  }
  for (size_t s = starts.size(); s-- > 0;) {
    const int end = s + 1 < starts.size() ? starts[s + 1] : chain.length();
    if (is_spilled(s)) actions.push_back({.kind = ActionKind::kRead, .first = starts[s]});
    for (int i = starts[s]; i < end; ++i) actions.push_back({.kind = ActionKind::kRecord, .first = i, .choice = 0});
    for (int i = end; i-- > starts[s];) actions.push_back({.kind = ActionKind::kBackward, .first = i});
    if (s > 0) actions.push_back({.kind = ActionKind::kDrop, .first = starts[s]});
  }
  return actions;
}

}  // namespace reprise
