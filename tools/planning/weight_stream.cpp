// See weight_stream.h.
#include "tools/planning/weight_stream.h"

#include <algorithm>
#include <map>

#include "tools/formats/error.h"
#include "tools/lowering/lower.h"
#include "tools/planning/prediction.h"
#include "tools/schedule/simulate.h"

namespace reprise {

namespace {

using Stream = WeightsRecipe::Stream;
constexpr uint64_t kLeastStreamedBytes = kStreamAlignment;  // smaller matrices would lie in the file with more padding than numbers

uint64_t bytes_in_file(const SolvedModel& model, uint32_t place) {
  return align_to(model.graph.tensor(model.state.state[place]).bytes, kStreamAlignment);
}

uint64_t bytes_in_file(const SolvedModel& model, const std::set<uint32_t>& places) {
  uint64_t bytes = 0;
  for (const uint32_t place : places) bytes += bytes_in_file(model, place);
  return bytes;
}

// What a list of calls brings in at least: each of its streamed weights once.
uint64_t streamed_bytes_of(const SolvedModel& model, const std::vector<Call>& calls, const std::set<uint32_t>& streamed) {
  std::set<uint32_t> used;
  for (const Call& call : calls) {
    for (const ValueId v : call.arguments) {
      const auto found = model.state.state_index.find(v);
      if (found != model.state.state_index.end() && streamed.count(found->second) != 0) used.insert(found->second);
    }
  }
  return bytes_in_file(model, used);
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

uint64_t least_window(const SolvedModel& model, const std::set<uint32_t>& streamed) {
  uint64_t most = 0;
  for_each_list(model, [&](const std::vector<Call>& calls) {
    for (const Call& call : calls) most = std::max(most, streamed_bytes_of(model, {call}, streamed));
  });
  return most;
}

void place_weights(SolvedModel& model, const std::set<uint32_t>& streamed, uint64_t window_bytes) {
  const uint64_t fixed = model.fixed_bytes();
  model.state_bytes = 0;
  for (uint32_t i = 0; i < model.state.state.size(); ++i) {
    if (streamed.count(i) == 0) model.state_bytes += model.graph.tensor(model.state.state[i]).bytes;
  }
  model.window = {streamed, window_bytes, model.state_bytes + model.carried_bytes};
  model.header_bytes = region_header(model.graph, model.window).bytes;
  model.store_all_bytes += model.fixed_bytes() - fixed;  // modulo 2^64
}

void place_weights_by_recipe(SolvedModel& model) {
  if (model.recipe.weights.stream == Stream::kNone) return;
  const std::set<uint32_t> streamed = streamable_weights(model);
  if (streamed.empty()) {
    throw UserError(model.recipe.name + ": weights.stream: the model has no frozen matrix of " + std::to_string(kLeastStreamedBytes) + " bytes; leave it out");
  }
  place_weights(model, streamed, least_window(model, streamed));
}

double streamed_step_cost(const SolvedModel& model, const OwnedPlan& plan) {
  const auto cost_of = [&](const OwnedProgram& program) {
    double now = 0, disk_is_free = 0;
    std::map<Ref, double> there;  // when a slot's load is done
    for (const Row& row : program.rows) {
      const double cost = row_cost(model, plan, program, row);
      const Ref slot = program.arguments[row.first_argument];
      if (row.op != Op::kLoad) {
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
  const double first = cost_of(plan.program(ProgramId::kMicroFirst)), update = cost_of(plan.program(ProgramId::kUpdate));
  return first + update + (plan.accumulate > 1 ? (plan.accumulate - 1) * cost_of(plan.program(ProgramId::kMicroAdd)) : 0);
}

namespace {

double computing_cost(const SolvedModel& model, const OwnedPlan& plan) {
  double cost = 0;
  for_each_step_row(plan, [&](const OwnedProgram& program, const Row& row, uint32_t times) {
    if (row.op != Op::kLoad) cost += times * row_cost(model, plan, program, row);
  });
  return cost;
}

// `eighths` of the bytes stay in memory, evenly over the model, so that those that are streamed have computation between them.
std::set<uint32_t> all_but(const SolvedModel& model, const std::set<uint32_t>& streamable, uint32_t eighths) {
  std::set<uint32_t> streamed;
  double owed = 0;  // bytes that should stay already
  for (const uint32_t place : streamable) {
    const double bytes = static_cast<double>(bytes_in_file(model, place));
    owed += bytes * eighths / 8;
    if (owed >= bytes / 2) {
      owed -= bytes;
    } else {
      streamed.insert(place);
    }
  }
  return streamed;
}

// Every forward of a link costs its loads, too: the schedule then weighs what recomputation brings in again.
void price_loads(const SolvedModel& model, Chain& chain) {
  const double byte = disk_level(model, 1).read_cost;
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

class StreamSearch {
 public:
  StreamSearch(const SolvedModel& model, const ScheduleRequest& request, const PlanPlaced& plan_placed)
      : trial_(model), request_(request), plan_placed_(plan_placed), streamable_(model.window.streamed) {}

  PlannedModel run() {
    const bool by_plan = trial_.recipe.weights.stream == Stream::kByPlan;
    if (!trial_.recipe.budget_bytes) return without_budget(by_plan);
    for (uint32_t eighths = by_plan ? 9 : 1; eighths-- > 0;) try_windows(all_but(trial_, streamable_, eighths));
    if (best_.fits) return std::move(best_);
    place_weights(trial_, streamable_, least_window(trial_, streamable_));
    return plan_placed_(trial_, request_);
  }

 private:
  // Memory is no concern then: all of it stays, or the window holds the next weight beside the one in use.
  PlannedModel without_budget(bool by_plan) {
    const std::set<uint32_t> streamed = by_plan ? std::set<uint32_t>{} : streamable_;
    place_weights(trial_, streamed, streamed.empty() ? 0 : std::min(2 * least_window(trial_, streamed), bytes_in_file(trial_, streamed)));
    return measured(plan_placed_(trial_, request_));
  }

  // Larger windows let loads begin earlier and keep weights longer, until the memory is worth more to the schedule.
  void try_windows(const std::set<uint32_t>& streamed) {
    if (streamed.empty()) return try_placed(streamed, 0), void();
    const uint64_t least = least_window(trial_, streamed), all = bytes_in_file(trial_, streamed);
    uint32_t in_vain = 0;
    for (const uint64_t halves : {2, 3, 4, 6, 8, 12, 16, 32}) {
      const uint64_t window = std::min(align_to(least * halves / 2, kStreamAlignment), all);
      in_vain = try_placed(streamed, window) ? 0 : in_vain + 1;
      if (window == all || in_vain == 2) return;
    }
  }

  // Whether it is better than the best before.
  bool try_placed(const std::set<uint32_t>& streamed, uint64_t window_bytes) {
    place_weights(trial_, streamed, window_bytes);
    if (trial_.fixed_bytes() >= *trial_.recipe.budget_bytes) return false;
    bool better = false;
    try {
      better = keep(plan_placed_(trial_, request_));
      if (best_.stall_cost > 0 && !streamed.empty()) better = keep(plan_with_loads_priced()) || better;
    } catch (const WindowTooSmall&) {  // weights of one row that do not lie side by side in it
    }
    return better;
  }

  PlannedModel plan_with_loads_priced() {
    const Chain plain = trial_.chain;
    price_loads(trial_, trial_.chain);
    PlannedModel planned = plan_placed_(trial_, request_);
    trial_.chain = plain;
    if (!planned.fits) return planned;
    planned.schedule.makespan = simulate(plain, planned.schedule.actions, request_.disk).makespan;
    planned.extra_forward_cost = planned.schedule.makespan / trial_.forward_backward_cost - 1;
    return planned;
  }

  PlannedModel measured(PlannedModel planned) const {
    if (!planned.fits) return planned;
    const double cost = streamed_step_cost(trial_, planned.plan);
    planned.stall_cost = cost > 0 ? 1 - computing_cost(trial_, planned.plan) / cost : 0;
    return planned;
  }

  bool keep(PlannedModel planned) {
    if (!planned.fits) return false;
    const double cost = streamed_step_cost(trial_, planned.plan);
    if (best_.fits && cost >= best_cost_) return false;
    best_ = measured(std::move(planned));
    best_cost_ = cost;
    return true;
  }

  SolvedModel trial_;
  const ScheduleRequest& request_;
  const PlanPlaced& plan_placed_;
  const std::set<uint32_t> streamable_;
  PlannedModel best_;
  double best_cost_ = 0;
};

}  // namespace

PlannedModel plan_streamed(const SolvedModel& model, const ScheduleRequest& request, const PlanPlaced& plan_placed) {
  return StreamSearch(model, request, plan_placed).run();
}

}  // namespace reprise
