// From recipe to plan: graph, backward, links, schedule, layout, rows, in that order.
// Here so that plan, fit, compare, audit and the tests walk the same way.
#pragma once

#include <functional>
#include <optional>

#include "tools/graph/held.h"
#include "tools/lowering/owned_plan.h"
#include "tools/lowering/sharing.h"
#include "tools/lowering/weight_window.h"
#include "tools/planning/wire_time.h"
#include "tools/recipes/recipe.h"
#include "tools/graph/training_state.h"
#include "tools/layout/chain_layout.h"
#include "tools/schedule/schedule.h"

namespace reprise {

class WeightSource;

// Costs in seconds, from a profile of the machine.
struct MeasuredCosts {
  CallPrice call_seconds;  // what the schedule minimises
  std::function<double(const OwnedPlan&, const OwnedProgram&, const Row&)> row_seconds;
  double micro_batch_seconds = 0;  // of a micro-batch beside its rows
  std::optional<DiskLevel> disk = {}, host = {};  // seconds of a byte; none: not measured
  std::optional<double> stream_read_seconds = {};  // of a byte of streamed weights; none: not measured
  std::optional<Wire> wire = {};                   // between ranks; none: not measured
};

// The strategy of a recipe that names a policy (tools/graph/policy.h) instead of a schedule over the chain.
constexpr const char* kPolicy = "policy";

// All that does not depend on schedule and budget.
struct SolvedModel {
  Recipe recipe;
  Graph network;  // as it was given
  Graph graph;    // with gradients and moments
  std::optional<Graph> answering;  // of a language model: the network for a few tokens of one sequence, for the program that generates
  ChainBodies bodies;
  TrainingState state;
  std::vector<Call> evaluation;
  Chain chain;
  Sharing sharing;  // among the ranks that the recipe asks for
  uint64_t state_bytes = 0, carried_bytes = 0, header_bytes = 0;
  uint64_t offloaded_bytes = 0;  // of State, on the host
  HeldBlock held;                // a part of the header
  WeightWindow window;  // which weights are streamed; none: all are in State
  bool streams_are_settled = false;  // these and no others, whatever the recipe lets the plan decide
  uint64_t store_all_bytes = 0;  // the arena that storing everything would need
  double forward_backward_cost = 0;  // of a micro-batch without recomputation: seconds if measured, else flop equivalents
  std::optional<MeasuredCosts> measured;

  // Bytes outside the chain's own area.
  uint64_t fixed_bytes() const { return state_bytes + carried_bytes + header_bytes; }
  // Bytes of the arena under the recipe's budget, of whichever kind it is; none where it has none.
  std::optional<uint64_t> budget_bytes() const {
    if (recipe.feature_map_budget_bytes) return fixed_bytes() - held.bytes + *recipe.feature_map_budget_bytes;
    return recipe.budget_bytes;
  }
  // Bytes that an arena leaves to the chain.
  uint64_t chain_bytes(uint64_t arena_bytes) const { return arena_bytes <= fixed_bytes() ? 0 : (arena_bytes - fixed_bytes()) / kAlignment * kAlignment; }
};

// Without measured costs, call_price of cost.h serves. Throws what call_seconds throws for a call that it lacks.
SolvedModel solve_model(const Recipe& recipe, const std::optional<MeasuredCosts>& measured = std::nullopt);
// The same with the published weights of weight_storage.h, for whoever asks often: a file's header may hold a vocabulary.
SolvedModel solve_model(const Recipe& recipe, const std::optional<MeasuredCosts>& measured, const WeightSource* published);
// The same of a network that need not be the recipe's own model, which is then asked for nothing.
SolvedModel solve_network(const Recipe& recipe, const Graph& network, const std::optional<MeasuredCosts>& measured = std::nullopt);

// Rows of a feasible schedule.
OwnedPlan lower_schedule(const SolvedModel& model, const Schedule& schedule, const ChainLayout& layout);

struct PlannedModel {
  bool fits = false;
  std::optional<uint64_t> budget_bytes;  // of the arena; none: store all
  uint64_t smallest_budget_bytes = 0;    // 0: unknown; filled where the plan does not fit, or when asked for
  OwnedPlan plan;                        // only where it fits
  Schedule schedule;
  uint64_t packed_bytes = 0, move_bytes = 0;
  double extra_forward_cost = 0;         // share of forward_backward_cost
  uint64_t window_bytes = 0;             // of streamed weights
  double stall_share = 0;                 // share of a step in which its rows wait for streamed weights
  std::optional<double> predicted_seconds;
};

// The request's memory_bytes is set here, from the recipe's budget.
PlannedModel plan_model(const SolvedModel& model, const ScheduleRequest& request);
ScheduleRequest request_of(const SolvedModel& model);

// So many bytes of the recipe's second level, disk or memory of the host, at the recipe's costs, measured costs or, without either, those of
// cost.h. Throws UserError where the profile has not measured it.
DiskLevel second_level(const SolvedModel& model, uint64_t bytes);

// The smallest budget, of the kind the recipe gives, for which `request`'s strategy finds a plan; 0: unknown. Of a plan of millions of calls it is
// without what the layout adds to the schedule's bytes.
uint64_t smallest_budget(const SolvedModel& model, const ScheduleRequest& request);

}  // namespace reprise
