// Implements planner.h. The chain's memory is the budget minus State, Carried and the header of
// the program's region, whose sizes are fixed.
#include "tools/plan/planning/planner.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <tuple>

#include "tools/files/io/error.h"
#include "tools/files/progress/long_work.h"
#include "tools/plan/costs/backends.h"
#include "tools/plan/costs/prediction.h"
#include "tools/plan/graph/cost.h"
#include "tools/plan/graph/fold.h"
#include "tools/plan/graph/offload.h"
#include "tools/plan/lowering/lower.h"
#include "tools/plan/planning/answering_program.h"
#include "tools/plan/planning/weight_storage.h"
#include "tools/plan/planning/weight_stream.h"
#include "tools/plan/schedule/simulate.h"

namespace reprise {

namespace {

OptimizerChoice optimizer_of(const Recipe& recipe) {
  OptimizerChoice choice;
  choice.update = recipe.optimizer.update;
  choice.weight_decay = static_cast<float>(recipe.optimizer.weight_decay);
  choice.momentum = static_cast<float>(recipe.optimizer.momentum);
  choice.beta1 = recipe.optimizer.beta1;
  choice.beta2 = recipe.optimizer.beta2;
  choice.epsilon = static_cast<float>(recipe.optimizer.eps);
  choice.nesterov = recipe.optimizer.nesterov;
  choice.moments = recipe.optimizer.states;
  choice.offload = recipe.optimizer.offload;
  choice.decay_power = recipe.optimizer.decay_power;
  choice.min_scale = static_cast<float>(recipe.optimizer.min_scale);
  choice.update_clip = static_cast<float>(recipe.optimizer.clip_threshold);
  choice.adalomo = recipe.optimizer.small;
  choice.rank = static_cast<uint32_t>(recipe.optimizer.rank);
  choice.period = static_cast<uint32_t>(recipe.optimizer.period);
  choice.scale = static_cast<float>(recipe.optimizer.scale);
  choice.by_tensor = recipe.optimizer.small;
  choice.matches_adam = recipe.optimizer.matches_adamw;
  choice.plain_rate =
      recipe.optimizer.adamw_lr ? static_cast<float>(*recipe.optimizer.adamw_lr / recipe.optimizer.lr) : 1.0f;
  choice.clip_norm = static_cast<float>(recipe.clip_norm.value_or(0));
  choice.gradient_release = recipe.gradient_release;
  return choice;
}

uint64_t sum_bytes(const Graph& graph, const std::vector<ValueId>& values) {
  uint64_t bytes = 0;
  for (const ValueId v : values) bytes += graph.tensor(v).bytes;
  return bytes;
}

void place_state(SolvedModel& model) {
  model.state_bytes = resident_state_bytes(model);
  for (const ValueId v : model.state.state)
    model.offloaded_bytes += model.graph.values[v].kind == ValueKind::kOffloaded ? model.graph.tensor(v).bytes : 0;
}

StateKind state_kind(ValueKind kind) {
  switch (kind) {
    case ValueKind::kScalars: return StateKind::kScalars;
    case ValueKind::kNorms: return StateKind::kNorms;
    case ValueKind::kBuffer: return StateKind::kBuffer;
    case ValueKind::kOptimizer: return StateKind::kOptimizer;
    case ValueKind::kOffloaded: return StateKind::kOffloaded;
    case ValueKind::kTable: return StateKind::kTable;
    default: return StateKind::kParameter;
  }
}

// Fills in State in its order. Streamed weights are in the file of weights, aligned for direct
// reads; offloaded moments are on the host.
void fill_state(const SolvedModel& model, OwnedPlan& plan) {
  uint64_t kept_ends[kMaxRanks] = {}, no_end = 0;
  for (uint32_t i = 0; i < model.state.state.size(); ++i) {
    const Value& value = model.graph.values[model.state.state[i]];
    const bool streamed = model.window.streamed.count(i) != 0;
    uint64_t& end = streamed                              ? plan.streamed_bytes
                    : value.kind == ValueKind::kOffloaded ? plan.spill_bytes
                                                          : plan.state_bytes;
    StateTensor tensor;
    tensor.tensor = value.tensor;
    if (streamed) tensor.tensor.bytes = align_to(tensor.tensor.bytes, kStreamAlignment * model.window.shards);
    const auto owner = model.state.owners.find(model.state.state[i]);
    if (owner != model.state.owners.end()) tensor.owner = owner->second;
    // Tensors that only one rank stores are placed after the tensors that all ranks store.
    uint64_t& kept_end = owner == model.state.owners.end() ? no_end : kept_ends[owner->second];
    tensor.tensor.offset = end + kept_end;
    tensor.kind = streamed ? StateKind::kStreamed : state_kind(value.kind);
    tensor.init = value.init;
    tensor.init_scale = value.init_scale;
    tensor.name = plan.keep(value.name);
    tensor.first_number = static_cast<uint32_t>(plan.numbers.size());
    plan.numbers.insert(plan.numbers.end(), value.numbers.begin(), value.numbers.end());
    plan.state.push_back(tensor);
    (tensor.owner == kEveryRank ? end : kept_end) += tensor.tensor.bytes;
  }
  plan.state_bytes += *std::max_element(std::begin(kept_ends), std::end(kept_ends));
  if (model.window.shards > 1) plan.shard_bytes = plan.streamed_bytes / model.window.shards;
  plan.state_bytes += plan.shard_bytes;
}

void fill_carried(const SolvedModel& model, OwnedPlan& plan) {
  for (const ValueId v : model.state.carried) {
    Tensor tensor = model.graph.tensor(v);
    tensor.offset = plan.carried_bytes;
    plan.carried.push_back(tensor);
    plan.carried_names.push_back(model.graph.values[v].name);
    plan.carried_bytes += tensor.bytes;
  }
}

void fill_learning_rate(const Recipe& recipe, OwnedPlan& plan) {
  LearningRate& rate = plan.learning_rate;
  rate.kind = static_cast<LearningRateKind>(recipe.lr_schedule.kind);
  rate.base = recipe.optimizer.lr;
  rate.gamma = recipe.lr_schedule.gamma;
  rate.warmup_steps = static_cast<uint32_t>(recipe.lr_schedule.warmup_steps);
  const bool ends_by_data = recipe.lr_schedule.epochs.has_value();  // then EpochPlans sets the steps
  rate.steps =
      static_cast<uint32_t>(recipe.lr_schedule.steps != 0 || ends_by_data ? recipe.lr_schedule.steps : recipe.steps);
  for (const uint64_t m : recipe.lr_schedule.milestones) plan.milestones.push_back(static_cast<uint32_t>(m));
}

uint64_t arena_bytes(const OwnedPlan& plan) {
  uint64_t region = 0;
  for (const OwnedProgram& program : plan.programs) region = std::max(region, program.bytes);
  return plan.state_bytes + plan.carried_bytes + region;
}

// Returns the bytes of a worker's stack that the most demanding row of all programs needs.
uint64_t worker_stack_bytes(const OwnedPlan& plan, const BackendRules& rules) {
  const AttributePools pools = plan.attributes.pools();
  uint64_t maximum = 0;
  for (const OwnedProgram& program : plan.programs) {
    for (const Row& row : program.rows) {
      maximum = std::max(maximum, rules.stack_bytes(ShapedKernelCall(kernel_call(plan, program, row), pools).shaped()));
    }
  }
  return maximum;
}

OwnedPlan assemble(const SolvedModel& model, const std::vector<Action>& actions, const ChainLayout& layout) {
  OwnedPlan plan;
  plan.name = model.recipe.name;
  plan.attributes = model.graph.attributes;
  plan.seed = model.recipe.seed;
  plan.accumulate = static_cast<uint32_t>(model.recipe.accumulate);
  plan.ranks = static_cast<uint32_t>(model.recipe.ranks());
  for (const LinkBody& link : model.bodies.links) plan.link_names.push_back(link.name);
  fill_state(model, plan);
  fill_carried(model, plan);
  fill_learning_rate(model.recipe, plan);
  const BackendRules& rules = backend_of(model.recipe);
  plan.backend = rules.name;
  const LoweringInput input = {model.graph,  model.bodies.links, model.state,  rules,
                               model.window, model.skips,         model.sharing};
  const auto program = [&plan](ProgramId id) -> OwnedProgram& { return plan.programs[static_cast<size_t>(id)]; };
  for (const ProgramId id : {ProgramId::kMicroFirst, ProgramId::kMicroAdd, ProgramId::kMicroLast}) {
    if (runs_in_step(id, plan.accumulate, model.sharing.two_levels) > 0)
      program(id) = lower_training(input, actions, layout, id);
  }
  program(ProgramId::kUpdate) = lower_update(input);
  program(ProgramId::kEvaluate) = lower_evaluation(input, model.evaluation);
  plan.arena_bytes = arena_bytes(plan);
  plan.worker_stack_bytes = worker_stack_bytes(plan, rules);
  if (model.answering)
    add_generation(plan, *model.answering, rules, model.window, static_cast<uint64_t>(model.recipe.sequence));
  plan.recipe_hash = text_hash(canonical_recipe(model.recipe).c_str());
  plan.spill_level = model.recipe.spill_level();
  for (OwnedProgram& each : plan.programs) {
    for (Slot& block : each.spilled) {
      block.tensor.offset += model.offloaded_bytes;
      plan.spill_bytes = std::max(plan.spill_bytes, block.tensor.offset + block.tensor.bytes);
    }
  }
  return plan;
}

// Returns `price` with a cache: the enumeration needs the price of the same call thousands of
// times.
CallPrice remembered(const CallPrice& price) {
  using Key = std::tuple<Op, Pass, uint32_t, uint16_t, std::vector<ValueId>>;
  return [price, known = std::make_shared<std::map<Key, double>>()](const Graph& graph, const Call& call) {
    const auto [found, is_new] =
        known->try_emplace(Key{call.op, call.pass, call.attribute, call.accumulate, call.arguments}, 0.0);
    if (is_new) found->second = price(graph, call);
    return found->second;
  };
}

uint64_t store_all_memory(const SolvedModel& model) { return model.store_all_bytes - model.fixed_bytes(); }

// True if a policy decides what each link's tape contains.
bool keeps_by_rule(const ScheduleRecipe& schedule) {
  return schedule.strategy == kPolicy && !is_offload(schedule.policy);
}

// Sets the bytes and the cost of the step that stores everything, with which plans are compared.
void set_references(SolvedModel& model) {
  if (keeps_by_rule(model.recipe.schedule)) {
    Recipe everything = model.recipe;
    everything.schedule = {};
    const SolvedModel reference = solve_network(everything, model.network, model.measured);
    model.store_all_bytes = reference.store_all_bytes;
    model.forward_backward_cost = reference.forward_backward_cost;
    return;
  }
  model.forward_backward_cost = store_all_cost(model.chain);
  ScheduleRequest none;
  none.strategy = "none";
  model.store_all_bytes = model.fixed_bytes() + make_schedule(model.chain, none).peak_bytes;
}

}  // namespace

DiskLevel second_level(const SolvedModel& model, uint64_t bytes) {
  const ScheduleRecipe& recipe = model.recipe.schedule;
  if (bytes == 0) return {};
  const bool in_host = model.recipe.spill_level() == SpillLevel::kHost;
  const double by_default = in_host ? kFlopsPerHostByte : kFlopsPerDiskByte;
  if (!model.measured) return {bytes, recipe.write_cost.value_or(by_default), recipe.read_cost.value_or(by_default)};
  const std::optional<DiskLevel>& measured = in_host ? model.measured->host : model.measured->disk;
  if (!measured) {
    throw UserError(model.recipe.name +
                    (in_host
                         ? ": schedule.host: the profile has not measured memory of the host; profile this recipe again"
                         : ": schedule.disk: the profile has not measured the disk; profile this recipe again"));
  }
  return {bytes, measured->write_cost, measured->read_cost};
}

ScheduleRequest request_of(const SolvedModel& model) {
  const Recipe& recipe = model.recipe;
  ScheduleRequest request;
  // A policy is not a strategy. If it fixes the tape of each link, "none" records all links. If it
  // offloads boundaries, request.starts replaces the strategy.
  request.strategy = recipe.schedule.strategy == kPolicy ? "none" : recipe.schedule.strategy;
  // h-revolve is "optimal" over two levels.
  if (request.strategy == "optimal" && recipe.schedule.spill_bytes() > 0) request.strategy = "h-revolve";
  if (recipe.schedule.strategy == kPolicy && is_offload(recipe.schedule.policy)) {
    request.starts =
        offloaded_starts(recipe.schedule.policy, model.graph, model.bodies.links, recipe.name + ": schedule.policy");
  }
  request.k = recipe.schedule.k;
  request.slots = recipe.schedule.slots;
  request.residues = recipe.schedule.residues;
  request.disk = second_level(model, recipe.schedule.spill_bytes());
  return request;
}

namespace {

// Maximum tokens of a prompt that are processed at once: enough that packing a weight pays, few
// enough that a single token is fast.
constexpr int kTokensAtOnce = 8;

std::optional<Graph> answering_network(const Recipe& recipe, const WeightSource* published) {
  const ModelDescription description = describe_model(recipe.model);
  if (description.input != ModelDescription::Input::kTokens || description.one_length) return std::nullopt;
  return build_stored_model(recipe, backend_of(recipe),
                            {.samples = 1, .sequence = std::min(kTokensAtOnce, recipe.sequence)}, published);
}

}  // namespace

SolvedModel solve_model(const Recipe& recipe, const std::optional<MeasuredCosts>& measured) {
  return solve_model(recipe, measured, open_published(recipe).get());
}

SolvedModel solve_model(const Recipe& recipe, const std::optional<MeasuredCosts>& measured,
                        const WeightSource* published) {
  SolvedModel model =
      solve_network(recipe, build_stored_model(recipe, backend_of(recipe), micro_batch_of(recipe), published),
                    measured);
  model.answering = answering_network(recipe, published);
  return model;
}

SolvedModel solve_network(const Recipe& recipe, const Graph& network, const std::optional<MeasuredCosts>& measured) {
  const LongWork work("solving the links of " + recipe.name);
  SolvedModel model;
  model.recipe = recipe;
  model.network = model.graph = network;
  model.bodies = cut_into_folded_links(model.graph);
  copy_skips(model.graph, model.bodies.links);
  OptimizerChoice optimizer = optimizer_of(recipe);
  if (recipe.parallel && recipe.parallel->shard_optimizer) optimizer.owners = static_cast<uint32_t>(recipe.ranks());
  model.state = build_training_state(model.graph, model.bodies, optimizer);
  if (optimizer.owners > 1 && model.state.owners.empty()) {
    throw UserError(recipe.name +
                    ": parallel.shard_optimizer: this optimizer keeps nothing that could be shared out; leave it out");
  }
  if (recipe.parallel)
    model.sharing = plan_sharing(model.graph, model.bodies, model.state, static_cast<uint32_t>(recipe.ranks()),
                                 recipe.parallel->two_levels && recipe.accumulate > 1);
  model.evaluation = evaluation_calls(model.graph);
  const bool by_policy = keeps_by_rule(recipe.schedule);
  if (by_policy) require_names(recipe.schedule.policy, model.graph, recipe.name + ": schedule.policy");
  solve_links(model.graph, model.bodies.links, backend_of(recipe),
              measured ? remembered(measured->call_seconds) : call_price,
              by_policy ? keep_rule(recipe.schedule.policy) : KeepRule{});
  model.chain = chain_of(model.graph, model.bodies.links);
  place_state(model);
  model.carried_bytes = sum_bytes(model.graph, model.state.carried);
  model.skips = pack_skips(model.graph, model.bodies.links);
  model.header_bytes = region_header(model.graph, model.skips, model.window, model.sharing).bytes;
  model.measured = measured;
  set_references(model);
  place_weights_by_recipe(model);
  return model;
}

OwnedPlan lower_schedule(const SolvedModel& model, const Schedule& schedule, const ChainLayout& layout) {
  return assemble(model, schedule.actions, layout);
}

namespace {

PlannedModel lower_to_plan(const SolvedModel& model, Schedule schedule) {
  PlannedModel planned;
  planned.budget_bytes = model.recipe.budget_bytes;
  planned.schedule = std::move(schedule);
  const ChainLayout layout = layout_chain(model.chain, planned.schedule.actions);
  planned.packed_bytes = layout.packed_bytes;
  planned.move_bytes = layout.move_bytes;
  planned.extra_forward_cost = planned.schedule.makespan / model.forward_backward_cost - 1;
  planned.plan = assemble(model, planned.schedule.actions, layout);
  planned.predicted_seconds = predict_seconds(model, planned.plan);
  return planned;
}

double move_seconds(const SolvedModel& model, const OwnedPlan& plan) {
  double seconds = 0;
  for_each_step_row(plan, [&](const OwnedProgram& program, const Row& row, uint32_t times) {
    if (row.op == Op::kMove) seconds += times * model.measured->row_seconds(plan, program, row);
  });
  return seconds;
}

// Replaces `best` by a plan for less memory if that plan is predicted to be faster. The schedule
// does not count the time of the layout's moves. So a schedule for less memory may cost more, but
// save moves that take longer than the difference. A large net has very many such schedules, so
// only the next few are tried.
void choose_by_prediction(const SolvedModel& model, ScheduleRequest request, PlannedModel& best) {
  constexpr int kTries = 4;
  uint64_t peak = best.schedule.peak_bytes;
  for (int t = 0; t < kTries; ++t) {
    request.memory_bytes = peak - 1;
    Schedule next = make_schedule(model.chain, request);
    const double longer = best.plan.accumulate * (next.makespan - best.schedule.makespan);
    if (!next.feasible || longer >= move_seconds(model, best.plan)) return;
    peak = next.peak_bytes;
    PlannedModel planned = lower_to_plan(model, std::move(next));
    if (*planned.predicted_seconds < *best.predicted_seconds) best = std::move(planned);
  }
}

// Plans a model whose window and streamed weights are chosen. Does not compute the smallest budget
// if the plan does not fit.
PlannedModel plan_placed(const SolvedModel& model, const ScheduleRequest& request) {
  PlannedModel planned;
  planned.budget_bytes = model.recipe.budget_bytes;
  ScheduleRequest within = request;
  // Without a budget the schedule may store everything.
  const std::optional<uint64_t> budget = model.budget_bytes();
  within.memory_bytes = budget ? model.chain_bytes(*budget) : UINT64_MAX;
  const bool by_memory = request.strategy == "optimal" || request.strategy == "h-revolve";
  if (by_memory) within.memory_bytes = std::min(within.memory_bytes, store_all_memory(model));  // no schedule uses more
  planned.schedule = make_schedule(model.chain, within);
  if (planned.schedule.feasible) {
    planned = lower_to_plan(model, std::move(planned.schedule));
    if (by_memory && model.measured) choose_by_prediction(model, within, planned);
    planned.fits = !planned.budget_bytes || planned.plan.arena_bytes <= *planned.budget_bytes;
  }
  return planned;
}

}  // namespace

namespace {

// Returns the model with less space for data in flight between ranks.
SolvedModel with_space(const SolvedModel& model, uint64_t space_bytes) {
  SolvedModel less = model;
  less.sharing.space_bytes = std::max(align_up(space_bytes), model.sharing.min_bytes);
  less.header_bytes = region_header(less.graph, less.skips, less.window, less.sharing).bytes;
  less.store_all_bytes -= model.fixed_bytes() - less.fixed_bytes();
  return less;
}

}  // namespace

PlannedModel plan_model(const SolvedModel& model, const ScheduleRequest& request) {
  const LongWork work("planning " + model.recipe.name);
  PlannedModel planned =
      model.window.streamed.empty() ? plan_placed(model, request) : plan_streamed(model, request, plan_placed);
  if (!planned.fits && model.sharing.space_bytes > model.sharing.min_bytes)
    return plan_model(with_space(model, model.sharing.space_bytes / 2), request);
  if (!planned.fits) planned.smallest_budget_bytes = smallest_budget(model, request);
  return planned;
}

namespace {

// Maximum calls of a plan that is made to find the smallest budget. In minimum memory a chain of
// thousands of links runs thousands of times, and its plan would need gigabytes.
constexpr uint64_t kMaxCallsOfMinimum = 2'000'000;

// Returns about how many calls a schedule has: those of all forwards, and for each backward as many
// as its link's forward has.
uint64_t calls_of(const SolvedModel& model, const Schedule& schedule) {
  std::vector<uint64_t> before = {0};  // by link: the calls of the links before it
  for (const LinkBody& link : model.bodies.links) before.push_back(before.back() + link.forward.size());
  uint64_t calls = 0;
  for (const Action& action : schedule.actions) {
    const bool runs = action.kind == ActionKind::kAdvance || action.kind == ActionKind::kRecord ||
                      action.kind == ActionKind::kBackward;
    const int end = action.kind == ActionKind::kAdvance ? action.last : action.first + 1;
    if (runs) calls += before[static_cast<size_t>(end)] - before[static_cast<size_t>(action.first)];
  }
  return calls;
}

}  // namespace

uint64_t smallest_budget(const SolvedModel& model, const ScheduleRequest& request) {
  if (model.sharing.space_bytes > model.sharing.min_bytes) return smallest_budget(with_space(model, 0), request);
  const LongWork work("smallest budget of " + model.recipe.name);
  ScheduleRequest nothing = request;
  nothing.memory_bytes = 0;
  const uint64_t memory = align_up(make_schedule(model.chain, nothing).smallest_memory);
  if (memory == 0) return 0;
  if (model.recipe.feature_map_budget_bytes) return model.skips.bytes + memory;
  ScheduleRequest minimum = request;
  minimum.memory_bytes = memory;
  const Schedule schedule = make_schedule(model.chain, minimum);
  if (!schedule.feasible) return 0;
  if (calls_of(model, schedule) > kMaxCallsOfMinimum) return model.fixed_bytes() + memory;
  return assemble(model, schedule.actions, layout_chain(model.chain, schedule.actions)).arena_bytes;
}

}  // namespace reprise
