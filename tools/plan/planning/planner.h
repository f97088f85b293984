// Makes a plan from a recipe: graph, backward, links, schedule, layout, rows, in this order. plan,
// fit, compare, audit and the tests use the same functions.
#pragma once

#include <functional>
#include <optional>

#include "tools/plan/graph/skips.h"
#include "tools/plan/lowering/owned_plan.h"
#include "tools/plan/lowering/sharing.h"
#include "tools/plan/lowering/weight_window.h"
#include "tools/plan/costs/wire_time.h"
#include "tools/plan/recipes/recipe.h"
#include "tools/plan/graph/training_state.h"
#include "tools/plan/layout/chain_layout.h"
#include "tools/plan/schedule/schedule.h"

namespace reprise {

class WeightSource;

// Costs in seconds, from a profile of the machine.
struct MeasuredCosts {
  CallPrice call_seconds;  // seconds of a call, of which the schedule minimises the sum
  std::function<double(const OwnedPlan&, const OwnedProgram&, const Row&)> row_seconds;
  double micro_batch_seconds = 0;  // time of a micro-batch in addition to its rows
  std::optional<DiskLevel> disk = {}, host = {};  // seconds per byte read and written; unset: not measured
  std::optional<double> stream_read_seconds = {};  // seconds for each byte of streamed weights; unset: not measured
  std::optional<Wire> wire = {};                   // network between ranks; unset: not measured
};

// The strategy of a recipe that names a policy (tools/plan/graph/policy.h) in place of a schedule
// over the chain.
constexpr const char* kPolicy = "policy";

// A model with everything that does not depend on schedule and budget.
struct SolvedModel {
  Recipe recipe;
  Graph network;  // the model's network as given
  Graph graph;    // the network with gradients and moments
  // For language models: the network for a few tokens of one sequence, from which the program that
  // generates text is made. Unset for other models.
  std::optional<Graph> answering;
  ChainBodies bodies;
  TrainingState state;
  std::vector<Call> evaluation;
  Chain chain;
  Sharing sharing;  // how the recipe's ranks share gradients, and the memory that sharing needs
  uint64_t state_bytes = 0, carried_bytes = 0, header_bytes = 0;
  uint64_t offloaded_bytes = 0;  // bytes of the part of State that is in memory of the host
  SkipBlock skips;               // skips and their gradients, which are a part of the header
  WeightWindow window;  // window of the streamed weights; if none is streamed, all weights are in State
  // True if the streamed weights are fixed, so that a plan must not choose others.
  bool streams_are_settled = false;
  uint64_t store_all_bytes = 0;  // bytes of an arena that stores everything
  // Cost of a micro-batch without recomputation: seconds if measured, else flop equivalents.
  double forward_backward_cost = 0;
  std::optional<MeasuredCosts> measured;

  // Returns the bytes outside the chain's own area.
  uint64_t fixed_bytes() const { return state_bytes + carried_bytes + header_bytes; }
  // Returns the maximum bytes of the arena by the recipe's budget, of either kind; nothing if the
  // recipe has no budget.
  std::optional<uint64_t> budget_bytes() const {
    if (recipe.feature_map_budget_bytes) return fixed_bytes() - skips.bytes + *recipe.feature_map_budget_bytes;
    return recipe.budget_bytes;
  }
  // Returns the bytes that an arena of this size leaves to the chain.
  uint64_t chain_bytes(uint64_t arena_bytes) const {
    return arena_bytes <= fixed_bytes() ? 0 : (arena_bytes - fixed_bytes()) / kAlignment * kAlignment;
  }
};

// Builds and solves the recipe's model. Without measured costs it uses call_price of cost.h. Throws
// the exception of measured->call_seconds for a call that the profile lacks.
SolvedModel solve_model(const Recipe& recipe, const std::optional<MeasuredCosts>& measured = std::nullopt);
// Solves the recipe's model with the given weights, which come from open_published()
// (weight_storage.h). It is for callers that solve often, because reading a file's header takes
// long if the header contains a vocabulary.
SolvedModel solve_model(const Recipe& recipe, const std::optional<MeasuredCosts>& measured,
                        const WeightSource* published);
// Solves a network that need not be the recipe's own model; the recipe's model is then not used.
SolvedModel solve_network(const Recipe& recipe, const Graph& network,
                          const std::optional<MeasuredCosts>& measured = std::nullopt);

// Lowers a feasible schedule to rows.
OwnedPlan lower_schedule(const SolvedModel& model, const Schedule& schedule, const ChainLayout& layout);

struct PlannedModel {
  bool fits = false;
  // bytes of the arena; unset: the recipe has no budget, or a budget of feature maps
  std::optional<uint64_t> budget_bytes;
  uint64_t smallest_budget_bytes = 0;    // 0: unknown; plan_model() sets it if the plan does not fit
  OwnedPlan plan;                        // empty unless `fits`
  Schedule schedule;
  uint64_t packed_bytes = 0, move_bytes = 0;
  double extra_forward_cost = 0;         // fraction of forward_backward_cost
  uint64_t window_bytes = 0;             // window of streamed weights; 0: none
  double stall_share = 0;                 // fraction of a step in which rows wait for streamed weights
  std::optional<double> predicted_seconds;
};

// Plans the model. Replaces the request's memory_bytes by the memory that the recipe's budget
// leaves to the chain.
PlannedModel plan_model(const SolvedModel& model, const ScheduleRequest& request);
ScheduleRequest request_of(const SolvedModel& model);

// Returns `bytes` of the recipe's second level, disk or memory of the host. The costs are the
// measured ones. Without a profile they are the recipe's or, if the recipe names none, those of
// cost.h. Throws UserError if the profile has not measured the level.
DiskLevel second_level(const SolvedModel& model, uint64_t bytes);

// Returns the smallest budget, of the recipe's kind, for which `request`'s strategy finds a plan;
// 0: unknown. For a schedule of millions of calls no plan is made. The result is then the
// schedule's memory plus fixed_bytes(), although another program, for example the evaluation, may
// need more.
uint64_t smallest_budget(const SolvedModel& model, const ScheduleRequest& request);

}  // namespace reprise
