// One function for each strategy that schedule.h names, and steps that several of them share. Each
// function has its own file, except schedule_hrevolve(). Only schedule.cpp and the strategies
// include this header; other code uses the names.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/plan/schedule/chain.h"
#include "tools/plan/schedule/schedule.h"

namespace reprise {

Schedule schedule_none(const Chain& chain, const ScheduleRequest& request);
Schedule schedule_every_k(const Chain& chain, const ScheduleRequest& request);
Schedule schedule_sqrt(const Chain& chain, const ScheduleRequest& request);
Schedule schedule_chen(const Chain& chain, const ScheduleRequest& request);
Schedule schedule_chen_recursive(const Chain& chain, const ScheduleRequest& request);
Schedule schedule_revolve(const Chain& chain, const ScheduleRequest& request);
Schedule schedule_multistage(const Chain& chain, const ScheduleRequest& request);
Schedule schedule_optimal(const Chain& chain, const ScheduleRequest& request);
// Uses the recursion of h_revolve.h; it is in optimal.cpp.
Schedule schedule_hrevolve(const Chain& chain, const ScheduleRequest& request);

// Simulates a plan. It is feasible if its peak fits the budget and its boundaries on disk fit the
// disk. The result of an infeasible plan has no actions. Its smallest_memory is the plan's peak, or
// 0 if the boundaries do not fit the disk.
Schedule judge_plan(const Chain& chain, std::vector<Action> actions, uint64_t memory_bytes, const DiskLevel& disk = {});

// Returns the better of two results: a feasible one rather than an infeasible one, the cheaper of
// two feasible ones, and of two infeasible ones the one that needs less memory.
Schedule better_plan(Schedule a, Schedule b);

// Returns the actions for segments that begin at each link of `starts` (increasing, starts[0] ==
// 0). In the forward only the inputs of segments are kept. Just before its backward a segment runs
// again and records the full tape of each link. The last segment is recorded at once, without a
// forward before. `spilled`: the inputs of segments are kept on disk, except those of the first and
// the last segment.
std::vector<Action> segment_actions(const Chain& chain, const std::vector<int>& starts, bool spilled = false);

}  // namespace reprise
