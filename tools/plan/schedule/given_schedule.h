// Reads and proves a schedule of another program: a file of actions (tools/FILES.md), or the
// actions that the Python package checkpoint_schedules prints. Such a schedule must be proved
// before its cost is compared with that of our schedules.
#pragma once

#include <string>
#include <vector>

#include "tools/plan/schedule/chain.h"
#include "tools/plan/schedule/simulate.h"

namespace reprise {

struct GivenSchedule {
  std::vector<Action> actions;
  std::vector<size_t> numbers;     // entry i: index, from 0, of the action in the file from which actions[i] was made
  std::vector<std::string> texts;  // entry n: the line of action n of the file
  std::vector<size_t> lines;       // entry n: line number, from 1, of action n of the file
};

// Reads a file with one action on each line: JSON objects, or actions as checkpoint_schedules
// prints them, such as `Forward(0, 3, True, False, StorageType.RAM)`. Empty lines are ignored. An
// action of checkpoint_schedules may become several actions or none. A forward with
// `write_adj_deps` records full tapes. The state that a forward of checkpoint_schedules leaves is a
// kept boundary here, until another state replaces it. Throws UserError that names line and action
// if a line is neither kind of action.
GivenSchedule read_given_schedule(const std::string& path, const Chain& chain);

// Simulates the schedule and returns the result. Throws UserError that names the file, the first
// wrong action and the reason if the schedule is invalid.
Simulation prove_given_schedule(const std::string& path, const Chain& chain, const GivenSchedule& schedule,
                                const DiskLevel& disk);

}  // namespace reprise
