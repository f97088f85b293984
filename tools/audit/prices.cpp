// The prices of prices.h.
#include "tools/audit/prices.h"

#include <set>

#include "tools/audit/manifest.h"
#include "tools/progress/long_work.h"

namespace reprise {

using nlohmann::json;

namespace {

std::optional<uint64_t>& budget_of(SolvedModel& model) {
  return model.recipe.feature_map_budget_bytes ? model.recipe.feature_map_budget_bytes : model.recipe.budget_bytes;
}

// What a step costs: seconds with a profile, else a share of its forward and backward.
double cost_of(const PlannedModel& planned) { return planned.predicted_seconds ? *planned.predicted_seconds : 1 + planned.extra_forward_cost; }

class BudgetCosts {
 public:
  BudgetCosts(const SolvedModel& model, const PlannedModel& planned)
      : model_(model), request_(request_of(model)), smallest_(smallest_budget(model, request_)), cost_(cost_of(planned)) {
    if (!budget_of(model_)) budget_of(model_) = planned.plan.arena_bytes;  // it stores everything
    budget_ = *budget_of(model_);
  }

  uint64_t budget() const { return budget_; }
  double cost() const { return cost_; }

  json less(uint64_t bytes) { return bytes >= budget_ || budget_ - bytes < smallest_ ? json(nullptr) : difference(budget_ - bytes, 1); }
  json more(uint64_t bytes) { return difference(budget_ + bytes, -1); }

 private:
  json difference(uint64_t budget, int sign) {
    budget_of(model_) = budget;
    const PlannedModel other = plan_model(model_, request_);
    return other.fits ? json(sign * (cost_of(other) - cost_)) : json(nullptr);
  }

  SolvedModel model_;
  const ScheduleRequest request_;
  const uint64_t smallest_;
  const double cost_;
  uint64_t budget_ = 0;
};

}  // namespace

json memory_prices(const SolvedModel& model, const PlannedModel& planned) {
  LongWork work("prices of " + model.recipe.name);
  std::set<uint64_t> sizes = {uint64_t{1} << 20};
  for (const Slot& slot : planned.plan.program(ProgramId::kMicroFirst).slots) sizes.insert(slot.tensor.bytes);
  BudgetCosts costs(model, planned);
  json by_bytes = json::array();
  for (const uint64_t bytes : sizes) {
    work.done(static_cast<double>(by_bytes.size()) / static_cast<double>(sizes.size()));
    by_bytes.push_back({{"bytes", bytes}, {"less", costs.less(bytes)}, {"more", costs.more(bytes)}});
  }
  return {{"unit", planned.predicted_seconds ? "seconds" : "work"}, {"step", costs.cost()}, {"budget", costs.budget()}, {"by_bytes", by_bytes}};
}

std::vector<json> sweep_manifests(const SolvedModel& model, int count) {
  LongWork work("sweep of " + model.recipe.name);
  const ScheduleRequest request = request_of(model);
  SolvedModel other = model;
  const double least = static_cast<double>(smallest_budget(model, request));
  const bool of_feature_maps = model.recipe.feature_map_budget_bytes.has_value();
  const double most = static_cast<double>(model.store_all_bytes - (of_feature_maps ? model.fixed_bytes() : 0));
  std::vector<json> manifests;
  for (int point = 0; point < count; ++point) {
    work.done(static_cast<double>(point) / count);
    budget_of(other) = static_cast<uint64_t>(least + (most - least) * point / (count - 1));
    const PlannedModel planned = plan_model(other, request);
    if (!planned.fits) continue;
    json manifest = manifest_of(other, planned);
    if (manifests.empty() || manifests.back()["plan_hash"] != manifest["plan_hash"]) manifests.push_back(std::move(manifest));
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
