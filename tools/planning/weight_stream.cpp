// See weight_stream.h.
#include "tools/planning/weight_stream.h"

#include <algorithm>
#include <map>

#include "tools/formats/error.h"
#include "tools/graph/cost.h"
#include "tools/lowering/lower.h"
#include "tools/planning/prediction.h"
#include "tools/planning/stream_search.h"
#include "tools/schedule/simulate.h"

namespace reprise {

namespace {

using Stream = WeightsRecipe::Stream;
constexpr uint64_t kLeastStreamedBytes = kStreamAlignment;  // smaller matrices would lie in the file with more padding than numbers

// The tables of which embeddings may read rows of their own.
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

// What a list of calls brings in at least: each of its streamed weights once, of a table that is gathered the rows of the micro-batch's tokens.
uint64_t streamed_bytes_of(const SolvedModel& model, const std::vector<Call>& calls, const std::set<uint32_t>& streamed) {
  std::set<uint32_t> whole;
  uint64_t rows_bytes = 0;
  const Tensor& tokens = model.graph.tensor(model.graph.input);
  for (const Call& call : calls) {
    for (size_t a = 0; a < call.arguments.size(); ++a) {
      const auto found = model.state.state_index.find(call.arguments[a]);
      if (found == model.state.state_index.end() || streamed.count(found->second) == 0) continue;
      const bool gathers = call.op == Op::kEmbedding && a == EmbeddingForward::kTable && model.window.gathered.count(found->second) != 0;
      if (!gathers) whole.insert(found->second);
      const Tensor& table = model.graph.tensor(found->first);
      if (gathers) rows_bytes = align_up(tokens.elements() * stored_bytes(table.dtype, table.last_dimension())) + align_up(tokens.used_bytes());
    }
  }
  return bytes_in_file(model, whole) + align_to(rows_bytes, kStreamAlignment);
}

// visit(calls) for every list of calls that becomes rows of a program.
template <typename Visit>
void for_each_list(const SolvedModel& model, const Visit& visit) {
  visit(model.evaluation);
  for (const LinkBody& link : model.bodies.links) {
    visit(link.forward);
    visit(link.backward);
  }
}

// A head that is tied to them needs all of it, in memory or streamed.
void require_apart(const SolvedModel& model, const std::set<uint32_t>& tables) {
  for_each_list(model, [&](const std::vector<Call>& calls) {
    for (const Call& call : calls) {
      if (call.op != Op::kLossHead) continue;
      for (const ValueId v : call.arguments) {
        const auto found = model.state.state_index.find(v);
        if (found == model.state.state_index.end() || tables.count(found->second) == 0) continue;
        throw UserError(model.recipe.name + ": weights.embedding: \"from_file\": the head is tied to the embeddings and needs all of them; give \"stream\": true too, or leave it out");
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

// Every forward of a link costs its loads, too: the schedule then weighs what recomputation brings in again.
void price_loads(const SolvedModel& model, Chain& chain) {
  const double byte = stream_byte_cost(model);
  for (size_t l = 0; l < chain.links.size(); ++l) {
    const double loads = byte * static_cast<double>(streamed_bytes_of(model, model.bodies.links[l].forward, model.window.streamed));
    Link& link = chain.links[l];
    link.forward_cost += loads;
    for (Residue& residue : link.residues) {
      residue.forward_cost += loads;
      for (double& cost : residue.record_costs) cost += loads;
    }
  }
}

// Plans choices of one model, whose weights it places.
class Trials {
 public:
  Trials(const SolvedModel& model, const ScheduleRequest& request, const PlanPlaced& plan_placed)
      : model_(model), request_(request), plan_placed_(plan_placed), streamable_(model.window.streamed), by_plan_(model.recipe.weights.stream == Stream::kByPlan && !model.streams_are_settled) {}

  PlannedModel run() {
    if (!model_.recipe.budget_bytes) return plan(without_budget());
    const std::optional<StreamChoice> best = search_streams(problem());
    return plan(best.value_or(StreamChoice{streamable_, least_window(model_, streamable_), false}));
  }

 private:
  // Memory is no concern then: all of it stays, or the window holds the next weight beside the one in use.
  StreamChoice without_budget() const {
    if (by_plan_) return {model_.window.gathered, least_window(model_, model_.window.gathered), false};
    return {streamable_, std::min(2 * least_window(model_, streamable_), bytes_in_file(model_, streamable_)), false};
  }

  StreamProblem problem() {
    StreamProblem problem;
    for (const uint32_t place : streamable_) problem.weights[place] = bytes_in_file(model_, place);
    problem.all = !by_plan_;
    problem.always = model_.window.gathered;
    problem.least_window = [this](const std::set<uint32_t>& streamed) { return least_window(model_, streamed); };
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
    } catch (const WindowTooSmall&) {  // it has fewer bytes than one row wants
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
    planned.stall_share = cost > 0 ? std::max(0.0, 1 - computing_cost(model_, planned.plan) / cost) : 0;  // sums of two orders differ in the last bit
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
    if (is_matrix && value.tensor.used_bytes() >= kLeastStreamedBytes) places.insert(i);
  }
  return places;
}

double stream_byte_cost(const SolvedModel& model) {
  if (!model.measured) return kFlopsPerDiskByte;
  if (!model.measured->stream_read_seconds) {
    throw UserError(model.recipe.name + ": weights.stream: the profile has not measured the file of weights; profile this recipe again");
  }
  return *model.measured->stream_read_seconds;
}

uint64_t resident_state_bytes(const SolvedModel& model) {
  uint64_t bytes = 0, kept_bytes[kMostRanks] = {};
  for (uint32_t i = 0; i < model.state.state.size(); ++i) {
    const ValueId v = model.state.state[i];
    const auto keeper = model.state.keepers.find(v);
    const bool is_away = model.window.streamed.count(i) != 0 || model.graph.values[v].kind == ValueKind::kOffloaded;
    if (!is_away) (keeper == model.state.keepers.end() ? bytes : kept_bytes[keeper->second]) += model.graph.tensor(v).bytes;
  }
  const uint64_t shard = model.window.shards > 1 ? bytes_in_file(model, model.window.streamed) / model.window.shards : 0;
  return bytes + *std::max_element(std::begin(kept_bytes), std::end(kept_bytes)) + shard;
}

uint64_t least_window(const SolvedModel& model, const std::set<uint32_t>& streamed) {
  uint64_t most = 0;
  for_each_list(model, [&](const std::vector<Call>& calls) {
    for (const Call& call : calls) most = std::max(most, streamed_bytes_of(model, {call}, streamed));
  });
  return most;
}

void place_weights(SolvedModel& model, const std::set<uint32_t>& streamed, uint64_t window_bytes) {
  const uint64_t fixed = model.fixed_bytes();
  model.window.streamed = streamed;
  model.state_bytes = resident_state_bytes(model);
  model.window.bytes = window_bytes;
  model.window.region_start = model.state_bytes + model.carried_bytes;
  model.header_bytes = region_header(model.graph, model.held, model.window, model.sharing).bytes;
  model.store_all_bytes += model.fixed_bytes() - fixed;  // modulo 2^64
}

void place_weights_by_recipe(SolvedModel& model) {
  const WeightsRecipe& weights = model.recipe.weights;
  if (weights.embedding_from_file) {
    model.window.gathered = embedding_tables(model);
    if (model.window.gathered.empty()) throw UserError(model.recipe.name + ": weights.embedding: \"from_file\": the model has no embeddings that are frozen; leave it out");
    if (weights.stream == Stream::kNone) require_apart(model, model.window.gathered);
  }
  if (model.recipe.parallel && model.recipe.parallel->shard_weights) model.window.shards = static_cast<uint32_t>(model.recipe.ranks());
  std::set<uint32_t> streamed = model.window.gathered;
  if (weights.stream != Stream::kNone) streamed.merge(streamable_weights(model));
  if (streamed.empty() && weights.stream != Stream::kNone) {
    throw UserError(model.recipe.name + ": weights.stream: the model has no frozen matrix of " + std::to_string(kLeastStreamedBytes) + " bytes; leave it out");
  }
  if (!streamed.empty()) place_weights(model, streamed, least_window(model, streamed));
}

void settle_streams(SolvedModel& model, const OwnedPlan& plan) {
  std::set<uint32_t> streamed;
  for (uint32_t i = 0; i < plan.state.size(); ++i) {
    if (plan.state[i].kind == StateKind::kStreamed) streamed.insert(i);
  }
  place_weights(model, streamed, least_window(model, streamed));
  model.streams_are_settled = true;
}

double streamed_step_cost(const SolvedModel& model, const OwnedPlan& plan) {
  const auto cost_of = [&](const OwnedProgram& program) {
    double now = 0, disk_is_free = 0;
    std::map<Ref, double> there;  // when a slot's load is done
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
