// See prices.h.
#include "tools/plan/audit/prices.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "tools/plan/audit/manifest.h"
#include "tools/files/progress/long_work.h"
#include "tools/plan/planning/does_not_fit.h"

namespace reprise {

using nlohmann::json;

namespace {

std::optional<uint64_t>& budget_of(SolvedModel& model) {
  return model.recipe.feature_map_budget_bytes ? model.recipe.feature_map_budget_bytes : model.recipe.budget_bytes;
}

// Returns the cost of a step: in seconds with a profile, otherwise as a multiple of the cost of one
// forward and backward.
double cost_of(const PlannedModel& planned) {
  return planned.predicted_seconds ? *planned.predicted_seconds : 1 + planned.extra_forward_cost;
}

// Computes the cost of a step at budgets near the recipe's budget.
class BudgetCosts {
 public:
  BudgetCosts(const SolvedModel& model, const PlannedModel& planned)
      : model_(model),
        request_(request_of(model)),
        smallest_(smallest_budget(model, request_)),
        cost_(cost_of(planned)) {
    if (!budget_of(model_)) budget_of(model_) = planned.plan.arena_bytes;  // no budget: the plan stores everything
    budget_ = *budget_of(model_);
  }

  uint64_t budget() const { return budget_; }
  double cost() const { return cost_; }

  // Returns the cost of the best plan whose budget is larger by `more` bytes (smaller if negative);
  // nothing if no plan fits.
  std::optional<double> with(int64_t more) {
    if (more < 0 && (uint64_t(-more) >= budget_ || budget_ - uint64_t(-more) < smallest_)) return std::nullopt;
    budget_of(model_) = budget_ + static_cast<uint64_t>(more);
    const PlannedModel other = plan_model(model_, request_);
    return other.fits ? std::optional(cost_of(other)) : std::nullopt;
  }

 private:
  SolvedModel model_;
  const ScheduleRequest request_;
  const uint64_t smallest_;
  const double cost_;
  uint64_t budget_ = 0;
};

// Computes the costs at many budgets in ascending order. More memory never costs time, so that all
// budgets between two budgets of equal cost have this cost. Plans are thus made only for budgets
// whose costs may differ; planning a large net takes seconds.
class CostsInOrder {
 public:
  CostsInOrder(BudgetCosts& costs, std::vector<int64_t> steps)
      : budgets_(costs), steps_(std::move(steps)), costs_(steps_.size()) {
    plan(0);
    plan(steps_.size() - 1);
    fill(0, steps_.size() - 1);
  }

  const std::vector<std::optional<double>>& costs() const { return costs_; }

 private:
  void plan(size_t at) { costs_[at] = budgets_.with(steps_[at]); }

  void fill(size_t first, size_t last) {
    if (last - first < 2) return;
    if (costs_[first] == costs_[last]) {
      std::fill(costs_.begin() + first + 1, costs_.begin() + last, costs_[first]);
      return;
    }
    const size_t middle = (first + last) / 2;
    plan(middle);
    fill(first, middle);
    fill(middle, last);
  }

  BudgetCosts& budgets_;
  const std::vector<int64_t> steps_;
  std::vector<std::optional<double>> costs_;
};

}  // namespace

json memory_prices(const SolvedModel& model, const PlannedModel& planned) {
  const LongWork work("prices of " + model.recipe.name);
  std::set<int64_t> sizes = {int64_t{1} << 20};
  for (const Slot& slot : planned.plan.program(ProgramId::kMicroFirst).slots)
    sizes.insert(static_cast<int64_t>(slot.tensor.bytes));
  BudgetCosts costs(model, planned);
  const CostsInOrder more(costs, {sizes.begin(), sizes.end()});
  std::vector<int64_t> smaller;
  for (const int64_t bytes : sizes) smaller.push_back(-bytes);
  const CostsInOrder less(costs, smaller);
  json by_bytes = json::array();
  for (const int64_t bytes : sizes) {
    const size_t at = by_bytes.size();
    const auto dearer = [&](const std::optional<double>& cost) {
      return cost ? json(*cost - costs.cost()) : json(nullptr);
    };
    const auto cheaper = [&](const std::optional<double>& cost) {
      return cost ? json(costs.cost() - *cost) : json(nullptr);
    };
    by_bytes.push_back({{"bytes", bytes}, {"less", dearer(less.costs()[at])}, {"more", cheaper(more.costs()[at])}});
  }
  return {{"unit", planned.predicted_seconds ? "seconds" : "work"},
          {"step", costs.cost()},
          {"budget", costs.budget()},
          {"by_bytes", by_bytes}};
}

std::vector<json> sweep_manifests(const SolvedModel& model, int count) {
  LongWork work("sweep of " + model.recipe.name);
  const ScheduleRequest request = request_of(model);
  SolvedModel other = model;
  const double minimum = static_cast<double>(smallest_budget(model, request));
  const bool of_feature_maps = model.recipe.feature_map_budget_bytes.has_value();
  const double maximum = static_cast<double>(model.store_all_bytes - (of_feature_maps ? model.fixed_bytes() : 0));
  std::vector<json> manifests;
  for (int point = 0; point < count; ++point) {
    work.done(static_cast<double>(point) / count);
    budget_of(other) = static_cast<uint64_t>(minimum + (maximum - minimum) * point / (count - 1));
    const PlannedModel planned = plan_model(other, request);
    if (!planned.fits) continue;
    json manifest = manifest_of(other, planned);
    if (manifests.empty() || manifests.back()["plan_hash"] != manifest["plan_hash"])
      manifests.push_back(std::move(manifest));
  }
  return manifests;
}

json largest_misfit(const SolvedModel& model) {
  const ScheduleRequest request = request_of(model);
  const uint64_t smallest = smallest_budget(model, request);
  if (smallest == 0) return nullptr;
  SolvedModel misfit = model;
  budget_of(misfit) = smallest - 1;
  const PlannedModel planned = plan_model(misfit, request);
  if (planned.fits) return nullptr;
  return {{"budget", smallest - 1}, {"why", does_not_fit_message(misfit, planned, request)}};
}

}  // namespace reprise
