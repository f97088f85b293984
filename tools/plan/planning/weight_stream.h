// Chooses which frozen weights stay in memory, and which are loaded from the file of weights for
// each use. Budget, schedule and the disk's speed decide it together. Memory for a weight saves its
// loads; memory for a value saves its recomputation; and recomputation loads its weights again.
#pragma once

#include <set>

#include "tools/plan/planning/planner.h"

namespace reprise {

// Returns the State indices of the frozen matrices that may be streamed.
std::set<uint32_t> streamable_weights(const SolvedModel& model);

// Returns the cost of a byte from the file of weights: the profile's, or without a profile that of
// cost.h. Throws UserError if the profile has not measured it.
double stream_byte_cost(const SolvedModel& model);

// Returns the bytes of State in a rank's arena: tensors that all ranks store, the maximum that one
// rank alone stores, and slices of streamed weights.
uint64_t resident_state_bytes(const SolvedModel& model);

// Returns the bytes of the smallest window into which the weights of each call fit.
uint64_t min_window(const SolvedModel& model, const std::set<uint32_t>& streamed);

// Sets the streamed weights and the window's bytes, and updates the sizes of the regions.
void place_weights(SolvedModel& model, const std::set<uint32_t>& streamed, uint64_t window_bytes);

// Sets the streamed weights that the recipe determines without a budget: none, the embedding tables
// of which only rows are read, or all possible weights. The window is the smallest possible.
void place_weights_by_recipe(SolvedModel& model);

// Limits the streamed weights to exactly those of this plan, so that another plan of the model has
// the same State.
void settle_streams(SolvedModel& model, const OwnedPlan& plan);

// Returns the cost of a step, in seconds if costs were measured, else in flop equivalents. Rows run
// one after another. Meanwhile the disk loads one weight after another, and a row waits until its
// weights are loaded. Transfers to and from the spill file count in full. The cost of a load
// depends on its bytes alone. So the real step is slower if each request costs much, as in the many
// small reads of a gather.
double streamed_step_cost(const SolvedModel& model, const OwnedPlan& plan);

// Returns the cheapest plan of a model that streams, over resident weights, window and schedule
// (PLANNING 4.6). `plan_placed` plans a model for which place_weights() was called.
using PlanPlaced = std::function<PlannedModel(const SolvedModel& model, const ScheduleRequest& request)>;
PlannedModel plan_streamed(const SolvedModel& model, const ScheduleRequest& request, const PlanPlaced& plan_placed);

}  // namespace reprise
