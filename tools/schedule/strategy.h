// The functions behind the names of schedule.h, a file for each but schedule_hrevolve, and the two steps that several share.
// Only schedule.cpp and the strategies include it: everybody else asks by name.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/schedule/chain.h"
#include "tools/schedule/schedule.h"

namespace reprise {

Schedule schedule_none(const Chain& chain, const ScheduleRequest& request);
Schedule schedule_every_k(const Chain& chain, const ScheduleRequest& request);
Schedule schedule_sqrt(const Chain& chain, const ScheduleRequest& request);
Schedule schedule_chen(const Chain& chain, const ScheduleRequest& request);
Schedule schedule_chen_recursive(const Chain& chain, const ScheduleRequest& request);
Schedule schedule_revolve(const Chain& chain, const ScheduleRequest& request);
Schedule schedule_multistage(const Chain& chain, const ScheduleRequest& request);
Schedule schedule_optimal(const Chain& chain, const ScheduleRequest& request);
Schedule schedule_hrevolve(const Chain& chain, const ScheduleRequest& request);  // in optimal.cpp; its recursion: h_revolve.h

// Simulates a plan: feasible if its peak fits the budget and what it spills fits the disk. Else the actions are dropped, and
// smallest_memory is the peak (0 where only the disk is too small).
Schedule judge_plan(const Chain& chain, std::vector<Action> actions, uint64_t memory_bytes, const DiskLevel& disk = {});

// The better answer of two: the cheaper feasible one; of two infeasible ones the one that needs less memory.
Schedule better_plan(Schedule a, Schedule b);

// The chain cut before each link of `starts` (increasing, starts[0] == 0): a segment keeps only its input at first, and is
// recorded whole, with full tapes, just before its backward; the last one is recorded at once. `spilled`: the inputs wait on disk, but the last
// segment's, which is wanted at once.
std::vector<Action> segment_actions(const Chain& chain, const std::vector<int>& starts, bool spilled = false);

}  // namespace reprise
