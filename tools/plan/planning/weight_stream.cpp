// Plans the streaming of weight_stream.h.
#include "tools/plan/planning/weight_stream.h"

#include <algorithm>
#include <map>

#include "tools/files/io/error.h"
#include "tools/plan/costs/prediction.h"
#include "tools/plan/graph/cost.h"
#include "tools/plan/lowering/lower.h"
#include "tools/plan/planning/stream_search.h"
#include "tools/plan/schedule/simulate.h"

namespace reprise {

namespace {

using Stream = WeightsRecipe::Stream;
// Minimum bytes of a streamed matrix: a smaller one would have more padding than numbers in the
// file.
constexpr uint64_t kMinStreamedBytes = kStreamAlignment;

// Returns the State indices of the frozen tables of embeddings, of which single rows may be read.
std::set<uint32_t> embedding_tables(const SolvedModel& model) {
  std::set<uint32_t> places;
  for (const Call& call : model.evaluation) {
    if (call.op != Op::kEmbedding) continue;
    const ValueId table = call.arguments[EmbeddingForward::kTable];
    if (!model.graph.values[table].trainable) places.insert(model.state.state_index.at(table));
  }
  return places;
}

uint64_t bytes_in_file(const SolvedModel& model, uint32_t place) {
  return align_to(model.graph.tensor(model.state.state[place]).bytes, kStreamAlignment * model.window.shards);
}

uint64_t bytes_in_file(const SolvedModel& model, const std::set<uint32_t>& places) {
  uint64_t bytes = 0;
  for (const uint32_t place : places) bytes += bytes_in_file(model, place);
  return bytes;
}

// Returns the minimum bytes that a list of calls loads: each streamed weight once, and of a
// gathered table only the rows of the micro-batch's tokens.
uint64_t streamed_bytes_of(const SolvedModel& model, const std::vector<Call>& calls,
                           const std::set<uint32_t>& streamed) {
  std::set<uint32_t> whole;
  uint64_t rows_bytes = 0;
  const Tensor& tokens = model.graph.tensor(model.graph.input);
  for (const Call& call : calls) {
    for (size_t a = 0; a < call.arguments.size(); ++a) {
      const auto found = model.state.state_index.find(call.arguments[a]);
      if (found == model.state.state_index.end() || streamed.count(found->second) == 0) continue;
      const bool gathers =
          call.op == Op::kEmbedding && a == EmbeddingForward::kTable && model.window.gathered.count(found->second) != 0;
      if (!gathers) whole.insert(found->second);
      const Tensor& table = model.graph.tensor(found->first);
      if (gathers)
        rows_bytes += align_up(tokens.elements() * stored_bytes(table.dtype, table.last_dimension())) +
                      align_up(tokens.used_bytes());
    }
  }
  return bytes_in_file(model, whole) + align_to(rows_bytes, kStreamAlignment);
}

// Calls visit(calls) for the lists of calls that may read streamed weights: the evaluation, and the
// forward and backward of each link.
template <typename Visit>
void for_each_list(const SolvedModel& model, const Visit& visit) {
  visit(model.evaluation);
  for (const LinkBody& link : model.bodies.links) {
    visit(link.forward);
    visit(link.backward);
  }
}

// Throws UserError if the loss head is tied to one of these tables: the head needs the whole table,
// in memory or streamed.
void require_apart(const SolvedModel& model, const std::set<uint32_t>& tables) {
  for_each_list(model, [&](const std::vector<Call>& calls) {
    for (const Call& call : calls) {
      if (call.op != Op::kLossHead) continue;
      for (const ValueId v : call.arguments) {
        const auto found = model.state.state_index.find(v);
        if (found == model.state.state_index.end() || tables.count(found->second) == 0) continue;
        throw UserError(model.recipe.name +
                        ": weights.embedding: \"from_file\": the head is tied to the embeddings and needs all of them; "
                        "give \"stream\": true too, or leave it out");
      }
    }
  });
}

bool is_load(const Row& row) { return kernel_info(row.op, row.pass).carrier == Carrier::kWeights; }

double computing_cost(const SolvedModel& model, const OwnedPlan& plan) {
  double cost = 0;
  for_each_step_row(plan, [&](const OwnedProgram& program, const Row& row, uint32_t times) {
    if (!is_load(row)) cost += times * row_cost(model, plan, program, row);
  });
  return cost;
}

// Adds the loads to the cost of every forward of a link, so that the schedule counts the loads of
// recomputation.
void price_loads(const SolvedModel& model, Chain& chain) {
  const double byte = stream_byte_cost(model);
  for (size_t l = 0; l < chain.links.size(); ++l) {
    const double loads =
        byte * static_cast<double>(streamed_bytes_of(model, model.bodies.links[l].forward, model.window.streamed));
    Link& link = chain.links[l];
    link.forward_cost += loads;
    for (Residue& residue : link.residues) {
      residue.forward_cost += loads;
      for (double& cost : residue.record_costs) cost += loads;
    }
  }
}

// Plans a model with different choices of streamed weights, window and price of loads. Calls
// place_weights() for each choice.
class Trials {
 public:
  Trials(const SolvedModel& model, const ScheduleRequest& request, const PlanPlaced& plan_placed)
      : model_(model),
        request_(request),
        plan_placed_(plan_placed),
        streamable_(model.window.streamed),
        by_plan_(model.recipe.weights.stream == Stream::kByPlan && !model.streams_are_settled) {}

  PlannedModel run() {
    if (!model_.recipe.budget_bytes) return plan(without_budget());
    const std::optional<StreamChoice> best = search_streams(problem());
    return plan(best.value_or(StreamChoice{streamable_, min_window(model_, streamable_), false}));
  }

 private:
  // Returns the choice without a budget. If the plan may choose, all weights but the gathered
  // tables stay in memory. Otherwise all are streamed, and the window has space for the weight in
  // use and for the next one.
  StreamChoice without_budget() const {
    if (by_plan_) return {model_.window.gathered, min_window(model_, model_.window.gathered), false};
    return {streamable_, std::min(2 * min_window(model_, streamable_), bytes_in_file(model_, streamable_)), false};
  }

  StreamProblem problem() {
    StreamProblem problem;
    for (const uint32_t place : streamable_) problem.weights[place] = bytes_in_file(model_, place);
    problem.all = !by_plan_;
    problem.always = model_.window.gathered;
    problem.min_window = [this](const std::set<uint32_t>& streamed) { return min_window(model_, streamed); };
    problem.plan = [this](const StreamChoice& choice) -> std::optional<StreamOutcome> {
      const PlannedModel planned = plan(choice);
      if (!planned.fits) return std::nullopt;
      return StreamOutcome{streamed_step_cost(model_, planned.plan), planned.stall_share > 0};
    };
    return problem;
  }

  PlannedModel plan(const StreamChoice& choice) {
    place_weights(model_, choice.streamed, align_to(choice.window_bytes, kStreamAlignment));
    PlannedModel planned;
    planned.budget_bytes = model_.recipe.budget_bytes;
    if (model_.recipe.budget_bytes && model_.fixed_bytes() >= *model_.recipe.budget_bytes) return planned;
    const Chain plain = model_.chain;
    if (choice.loads_are_priced) price_loads(model_, model_.chain);
    try {
      planned = plan_placed_(model_, request_);
    } catch (const WindowTooSmall&) {  // one row needs more than the window
    }
    model_.chain = plain;
    if (planned.fits) describe(planned);
    return planned;
  }

  void describe(PlannedModel& planned) const {
    planned.schedule.makespan = simulate(model_.chain, planned.schedule.actions, request_.disk).makespan;
    planned.extra_forward_cost = planned.schedule.makespan / model_.forward_backward_cost - 1;
    planned.window_bytes = model_.window.bytes;
    const double cost = streamed_step_cost(model_, planned.plan);
    // The sums are in different orders, and may differ in the last bit: the share must not be
    // negative.
    planned.stall_share = cost > 0 ? std::max(0.0, 1 - computing_cost(model_, planned.plan) / cost) : 0;
  }

  SolvedModel model_;
  const ScheduleRequest& request_;
  const PlanPlaced& plan_placed_;
  const std::set<uint32_t> streamable_;
  const bool by_plan_;
};

}  // namespace

std::set<uint32_t> streamable_weights(const SolvedModel& model) {
  std::set<uint32_t> places;
  for (uint32_t i = 0; i < model.state.state.size(); ++i) {
    const Value& value = model.graph.values[model.state.state[i]];
    const bool is_matrix = value.kind == ValueKind::kParameter && !value.trainable && value.tensor.rank >= 2;
    if (is_matrix && value.tensor.used_bytes() >= kMinStreamedBytes) places.insert(i);
  }
  return places;
}

double stream_byte_cost(const SolvedModel& model) {
  if (!model.measured) return kFlopsPerDiskByte;
  if (!model.measured->stream_read_seconds) {
    throw UserError(model.recipe.name +
                    ": weights.stream: the profile has not measured the file of weights; profile this recipe again");
  }
  return *model.measured->stream_read_seconds;
}

uint64_t resident_state_bytes(const SolvedModel& model) {
  uint64_t bytes = 0, kept_bytes[kMaxRanks] = {};
  for (uint32_t i = 0; i < model.state.state.size(); ++i) {
    const ValueId v = model.state.state[i];
    const auto owner = model.state.owners.find(v);
    const bool is_away = model.window.streamed.count(i) != 0 || model.graph.values[v].kind == ValueKind::kOffloaded;
    if (!is_away)
      (owner == model.state.owners.end() ? bytes : kept_bytes[owner->second]) += model.graph.tensor(v).bytes;
  }
  const uint64_t shard =
      model.window.shards > 1 ? bytes_in_file(model, model.window.streamed) / model.window.shards : 0;
  return bytes + *std::max_element(std::begin(kept_bytes), std::end(kept_bytes)) + shard;
}

uint64_t min_window(const SolvedModel& model, const std::set<uint32_t>& streamed) {
  uint64_t maximum = 0;
  for_each_list(model, [&](const std::vector<Call>& calls) {
    for (const Call& call : calls) maximum = std::max(maximum, streamed_bytes_of(model, {call}, streamed));
  });
  return maximum;
}

void place_weights(SolvedModel& model, const std::set<uint32_t>& streamed, uint64_t window_bytes) {
  const uint64_t fixed = model.fixed_bytes();
  model.window.streamed = streamed;
  model.state_bytes = resident_state_bytes(model);
  model.window.bytes = window_bytes;
  model.window.region_start = model.state_bytes + model.carried_bytes;
  model.header_bytes = region_header(model.graph, model.skips, model.window, model.sharing).bytes;
  // the difference may be negative; unsigned arithmetic is modulo 2^64
  model.store_all_bytes += model.fixed_bytes() - fixed;
}

void place_weights_by_recipe(SolvedModel& model) {
  const WeightsRecipe& weights = model.recipe.weights;
  if (weights.embedding_from_file) {
    model.window.gathered = embedding_tables(model);
    if (model.window.gathered.empty())
      throw UserError(model.recipe.name +
                      ": weights.embedding: \"from_file\": the model has no embeddings that are frozen; leave it out");
    if (weights.stream == Stream::kNone) require_apart(model, model.window.gathered);
  }
  if (model.recipe.parallel && model.recipe.parallel->shard_weights)
    model.window.shards = static_cast<uint32_t>(model.recipe.ranks());
  std::set<uint32_t> streamed = model.window.gathered;
  if (weights.stream != Stream::kNone) streamed.merge(streamable_weights(model));
  if (streamed.empty() && weights.stream != Stream::kNone) {
    throw UserError(model.recipe.name + ": weights.stream: the model has no frozen matrix of " +
                    std::to_string(kMinStreamedBytes) + " bytes; leave it out");
  }
  if (!streamed.empty()) place_weights(model, streamed, min_window(model, streamed));
}

void settle_streams(SolvedModel& model, const OwnedPlan& plan) {
  std::set<uint32_t> streamed;
  for (uint32_t i = 0; i < plan.state.size(); ++i) {
    if (plan.state[i].kind == StateKind::kStreamed) streamed.insert(i);
  }
  place_weights(model, streamed, min_window(model, streamed));
  model.streams_are_settled = true;
}

double streamed_step_cost(const SolvedModel& model, const OwnedPlan& plan) {
  const auto cost_of = [&](const OwnedProgram& program) {
    double now = 0, disk_is_free = 0;
    std::map<Ref, double> there;  // time at which the load of a slot ends, by slot
    for (const Row& row : program.rows) {
      const double cost = row_cost(model, plan, program, row);
      const Ref slot = program.arguments[row.first_argument];
      if (!is_load(row)) {
        now += cost;
      } else if (row.pass == Pass::kStart) {
        disk_is_free = std::max(disk_is_free, now) + cost;
        there[slot] = disk_is_free;
      } else {
        now = std::max(now, there.at(slot));
      }
    }
    return now;
  };
  double cost = 0;
  for (uint32_t p = 0; p < kProgramCount; ++p) {
    const uint32_t times = runs_in_step(plan, static_cast<ProgramId>(p));
    if (times > 0) cost += times * cost_of(plan.programs[p]);
  }
  return cost;
}

PlannedModel plan_streamed(const SolvedModel& model, const ScheduleRequest& request, const PlanPlaced& plan_placed) {
  return Trials(model, request, plan_placed).run();
}

}  // namespace reprise
