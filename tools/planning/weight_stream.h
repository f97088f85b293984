// Which frozen weights stay in memory, and which come from the file of weights each time that they are wanted.
// Here because budget, schedule and the disk's speed decide it together: memory that holds a weight saves its loads, memory that holds a value
// saves its recomputation, and what is recomputed loads its weights again.
#pragma once

#include <set>

#include "tools/planning/planner.h"

namespace reprise {

// Places in State of the frozen matrices that may be streamed.
std::set<uint32_t> streamable_weights(const SolvedModel& model);

// The cost of a byte from the file of weights: as the profile measured it, else that of cost.h. Throws UserError where the profile has not.
double stream_byte_cost(const SolvedModel& model);

// What State takes in a rank's arena: what all ranks have, the most that one keeps alone, and slices of streamed weights.
uint64_t resident_state_bytes(const SolvedModel& model);

// The smallest window that each call's weights fit.
uint64_t least_window(const SolvedModel& model, const std::set<uint32_t>& streamed);

// From here on those weights are streamed, through a window of so many bytes, and no others: regions' sizes follow.
void place_weights(SolvedModel& model, const std::set<uint32_t>& streamed, uint64_t window_bytes);

// All that the recipe's "stream" says before a budget is known: nothing is streamed, or everything that may be, through the smallest window.
void place_weights_by_recipe(SolvedModel& model);

// From here on what that plan of the model streams is streamed, and nothing else: another plan of the model then has the same State.
void settle_streams(SolvedModel& model, const OwnedPlan& plan);

// What a step of the plan costs, in seconds where costs were measured, else in flop equivalents: rows run one after another, the disk brings one
// weight after another beside them, and a row waits for its weights. Transfers to and from the spill file count in full. A load costs its bytes
// alone, whatever a request costs: where that is much, as of the many small reads of a gather, the step is slower than this says.
double streamed_step_cost(const SolvedModel& model, const OwnedPlan& plan);

// The cheapest plan of a model that streams, over what is resident, the window and the schedule (PLANNING 4.6). `plan_placed` plans a model whose
// weights are placed.
using PlanPlaced = std::function<PlannedModel(const SolvedModel& model, const ScheduleRequest& request)>;
PlannedModel plan_streamed(const SolvedModel& model, const ScheduleRequest& request, const PlanPlaced& plan_placed);

}  // namespace reprise
