// Implements compare.h. Makes a schedule with each strategy and lays it out. Lowers a schedule to
// rows only if measured costs allow a prediction in seconds.
#include "tools/plan/planning/compare.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/files/io/error.h"
#include "tools/files/io/text.h"
#include "tools/files/progress/long_work.h"
#include "tools/plan/costs/prediction.h"
#include "tools/plan/schedule/simulate.h"

namespace reprise {

using nlohmann::json;

namespace {

// Returns the bytes of the recipe's second level. A recipe without one is compared with a disk as
// large as the arena that stores everything.
uint64_t spill_budget(const SolvedModel& model) {
  return model.recipe.schedule.spill_bytes() > 0 ? model.recipe.schedule.spill_bytes() : model.store_all_bytes;
}

// A chain on which strategies are compared: a chain alone, or the chain of a model.
struct Compared {
  const Chain& chain;
  uint64_t fixed_bytes;  // bytes of the model's arena outside the chain; 0 for a chain alone
  double step_cost;      // cost of the step that stores everything
};
Compared compared(const SolvedModel& model) { return {model.chain, model.fixed_bytes(), model.forward_backward_cost}; }

json empty_row(const std::string& strategy) {
  return {{"strategy", strategy},          {"feasible", false},
          {"peak_bytes", nullptr},         {"packed_bytes", nullptr},
          {"extra_forward_cost", nullptr}, {"predicted_seconds", nullptr},
          {"smallest_budget", nullptr}};
}

// Fills the row; returns the layout if the schedule is feasible.
std::optional<ChainLayout> fill_row(json& row, const Compared& with, const Schedule& schedule) {
  if (!schedule.feasible) {
    if (schedule.smallest_memory > 0) row["smallest_budget"] = with.fixed_bytes + schedule.smallest_memory;
    return std::nullopt;
  }
  row["feasible"] = true;
  row["peak_bytes"] = with.fixed_bytes + schedule.peak_bytes;
  ChainLayout layout = layout_chain(with.chain, schedule.actions);
  row["packed_bytes"] = with.fixed_bytes + layout.packed_bytes;
  row["extra_forward_cost"] = schedule.makespan / with.step_cost - 1;
  return layout;
}

json compare_one(const SolvedModel& model, const std::string& strategy, uint64_t memory) {
  json row = empty_row(strategy);
  try {
    ScheduleRequest request = request_of(model);
    if (request.strategy != strategy) request.k = request.slots = 0;
    request.strategy = strategy;
    request.memory_bytes = memory;
    request.disk = {};
    const std::string level = spill_name(model.recipe.spill_level());
    const bool spills = chooses_for_disk(strategy) || (strategy == model.recipe.schedule.strategy &&
                                                       takes_disk(strategy) && model.recipe.schedule.spill_bytes() > 0);
    if (spills) {
      row[level + "_budget_bytes"] = spill_budget(model);
      row[level + "_is_assumed"] = model.recipe.schedule.spill_bytes() == 0;
      row[level + "_bytes"] = nullptr;
      request.disk = second_level(model, spill_budget(model));
    }
    const Schedule schedule = make_schedule(model.chain, request);
    const std::optional<ChainLayout> layout = fill_row(row, compared(model), schedule);
    if (spills && layout) row[level + "_bytes"] = schedule.disk_bytes;
    if (model.measured && layout)
      row["predicted_seconds"] = *predict_seconds(model, lower_schedule(model, schedule, *layout));
  } catch (const UserError& error) {  // for example a parameter that only this strategy needs
    row["reason"] = error.what();
  }
  return row;
}

// Returns the model solved for another strategy. It is solved again because a policy gives links
// other tapes.
SolvedModel solved_for(const SolvedModel& model, const std::string& strategy, const std::string& policy) {
  Recipe recipe = model.recipe;
  recipe.schedule = {};
  recipe.schedule.strategy = strategy;
  recipe.schedule.policy = policy;
  return solve_network(recipe, model.network, model.measured);
}

json compare_policy(const SolvedModel& model, const std::string& policy, uint64_t memory) {
  json row = compare_one(solved_for(model, kPolicy, policy), "none", memory);
  row["strategy"] = kPolicy;
  row["policy"] = policy;
  return row;
}

}  // namespace

json compare_strategies(const SolvedModel& model) {
  if (model.recipe.schedule.strategy == kPolicy) return compare_strategies(solved_for(model, "optimal", ""));
  const uint64_t budget = model.budget_bytes().value_or(model.store_all_bytes), memory = model.chain_bytes(budget);
  LongWork work("comparing strategies");
  const double all = static_cast<double>(strategy_names().size() + policy_names().size());
  json rows = json::array();
  const auto add = [&](json row) {
    rows.push_back(std::move(row));
    work.done(static_cast<double>(rows.size()) / all);
  };
  for (const std::string& strategy : strategy_names()) add(compare_one(model, strategy, memory));
  for (const std::string& policy : policy_names()) add(compare_policy(model, policy, memory));
  return {{"budget", budget}, {"rows", rows}};
}

json compare_strategies(const Chain& chain, std::optional<uint64_t> budget_bytes) {
  const Compared with = {chain, 0, store_all_cost(chain)};
  const uint64_t budget = budget_bytes ? *budget_bytes : make_schedule(chain, {.strategy = "none"}).peak_bytes;
  LongWork work("comparing strategies");
  json rows = json::array();
  for (const std::string& strategy : strategy_names()) {
    json row = empty_row(strategy);
    try {
      fill_row(row, with, make_schedule(chain, {.strategy = strategy, .memory_bytes = budget}));
    } catch (const UserError& error) {  // the chain is too long for the strategy
      row["reason"] = error.what();
    }
    rows.push_back(row);
    work.done(static_cast<double>(rows.size()) / static_cast<double>(strategy_names().size()));
  }
  return {{"budget", budget}, {"rows", rows}};
}

json sweep_strategies(const SolvedModel& model, int points) {
  if (model.recipe.schedule.strategy == kPolicy) return sweep_strategies(solved_for(model, "optimal", ""), points);
  ScheduleRequest optimal;
  optimal.memory_bytes = 0;
  const uint64_t minimum =
      std::min(make_schedule(model.chain, optimal).smallest_memory + model.fixed_bytes(), model.store_all_bytes);
  const auto front = [&](const SolvedModel& solved, const std::string& strategy) {
    LongWork work("front of " + (solved.recipe.schedule.policy.empty() ? strategy : solved.recipe.schedule.policy));
    json list = json::array();
    for (int p = 0; p < points; ++p) {
      const uint64_t step = (model.store_all_bytes - minimum) / static_cast<uint64_t>(points - 1);
      const uint64_t budget = p == points - 1 ? model.store_all_bytes : minimum + step * static_cast<uint64_t>(p);
      json point = compare_one(solved, strategy, model.chain_bytes(budget));
      work.done(static_cast<double>(p + 1) / points);
      point.erase("strategy");
      point["budget"] = budget;
      list.push_back(point);
    }
    return list;
  };
  json fronts = json::array();
  for (const std::string& strategy : strategy_names())
    fronts.push_back({{"strategy", strategy}, {"points", front(model, strategy)}});
  for (const std::string& policy : policy_names()) {
    fronts.push_back(
        {{"strategy", kPolicy}, {"policy", policy}, {"points", front(solved_for(model, kPolicy, policy), "none")}});
  }
  return {{"store_all_bytes", model.store_all_bytes}, {"fronts", fronts}};
}

namespace {

std::string row_text(const json& row) {
  const std::string strategy = row.value("policy", row.at("strategy").get<std::string>());
  char line[200];
  if (!row.at("feasible").get<bool>()) {
    const json& minimum = row.at("smallest_budget");
    const std::string words = row.contains("reason") ? row.at("reason").get<std::string>()
                              : minimum.is_null()      ? "does not fit"
                                                     : "needs " + bytes_text(minimum.get<uint64_t>());
    std::snprintf(line, sizeof line, "%-16s  %s\n", strategy.c_str(), words.c_str());
    return line;
  }
  std::string spilled;
  for (const auto& [key, where] : {std::pair{"disk_bytes", " on disk"}, {"host_bytes", " on the host"}}) {
    if (row.contains(key) && row.at(key).get<uint64_t>() > 0)
      spilled = "  with " + bytes_text(row.at(key).get<uint64_t>()) + where;
  }
  std::snprintf(line, sizeof line, "%-16s  %-11s  %-11s  %5.1f%%%s\n", strategy.c_str(),
                bytes_text(row.at("peak_bytes").get<uint64_t>()).c_str(),
                bytes_text(row.at("packed_bytes").get<uint64_t>()).c_str(),
                100 * row.at("extra_forward_cost").get<double>(), spilled.c_str());
  return line;
}

// Returns text on how to plan with a disk, if a feasible row uses one though the recipe names none;
// "" if no row does.
std::string disk_advice(const json& comparison) {
  for (const json& row : comparison.at("rows")) {
    if (!row.at("feasible").get<bool>() || !row.value("disk_is_assumed", false) || row.at("disk_bytes") == 0) continue;
    const std::string strategy = row.at("strategy").get<std::string>();
    return "on disk: the recipe names none, so a spill file of up to " +
           bytes_text(row.at("disk_budget_bytes").get<uint64_t>()) + " was allowed; `reprise plan RECIPE --schedule " +
           strategy + " --disk " + std::to_string(row.at("disk_bytes").get<uint64_t>()) + "` plans with it\n";
  }
  return "";
}

}  // namespace

std::string comparison_text(const json& comparison, ComparedKind kind) {
  std::string text = "at a budget of " + bytes_text(comparison.at("budget").get<uint64_t>()) +
                     "\nstrategy          peak         packed       extra work\n";
  bool fits = false;
  for (const json& row : comparison.at("rows")) {
    text += row_text(row);
    fits = fits || row.at("feasible").get<bool>();
  }
  const bool is_chain = kind == ComparedKind::kChain;
  if (is_chain)
    text +=
        "a chain file names no values and no disk: policies are left out, h-revolve and multistage stay in memory\n";
  if (!fits) return text + (is_chain ? "" : "nothing fits; `reprise fit RECIPE --budget B` says which budget would\n");
  return text +
         "peak: the most bytes that are needed at one time; packed: the size of the arena in which each of them has "
         "its address\n"
         "extra work: of a step's forward and backward, by flops and bytes\n" +
         disk_advice(comparison);
}

}  // namespace reprise
