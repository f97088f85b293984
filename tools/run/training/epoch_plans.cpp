// See epoch_plans.h.
#include "tools/run/training/epoch_plans.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tools/files/io/error.h"

namespace reprise {

uint64_t steps_of_epochs(double epochs, const Recipe& recipe, const Dataset& data) {
  const double samples_in_step = static_cast<double>(recipe.batch) * static_cast<double>(recipe.micro_batches());
  // The last factor prevents that a rounding error adds a step: 0.1 x 30 must give 3 steps.
  const double steps = std::ceil(epochs * static_cast<double>(data.size()) / samples_in_step * (1 - 1e-12));
  if (steps > static_cast<double>(std::numeric_limits<uint32_t>::max()))
    throw UserError(recipe.name + ": epochs: are more than 4294967295 steps; train for fewer");
  return std::max<uint64_t>(1, static_cast<uint64_t>(steps));
}

EpochPlans::EpochPlans(const CompiledPlan& compiled, const Recipe& recipe, const Dataset& data) : original_(compiled) {
  const LrSchedule& schedule = recipe.lr_schedule;
  if (schedule.kind != LrSchedule::Kind::kCosine) return;
  steps_ = schedule.epochs ? steps_of_epochs(*schedule.epochs, recipe, data) : schedule.steps;
  if (!schedule.epochs) return;
  if (schedule.warmup_steps >= steps_) {
    throw UserError(recipe.name + ": lr_schedule.warmup_steps: must be less than the " + std::to_string(steps_) +
                    " steps in which the data are passed over " + "as often as \"epochs\" says, not " +
                    std::to_string(schedule.warmup_steps));
  }
  const auto copy = [this](const Plan& plan) {
    plans_.push_back(plan);
    plans_.back().learning_rate.steps = static_cast<uint32_t>(steps_);
    return &plans_.back();
  };
  const Plan* chosen = nullptr;
  for (const WrittenPlan& each : compiled.plans) {
    written_.push_back(each);
    written_.back().plan = copy(*each.plan);
    if (each.plan == &compiled.plan) chosen = written_.back().plan;
  }
  if (chosen == nullptr) chosen = copy(compiled.plan);
  copies_.push_back({*chosen,
                     compiled.recipe,
                     compiled.summary,
                     compiled.port,
                     compiled.hash,
                     {written_.data(), static_cast<uint32_t>(written_.size())},
                     compiled.file});
}

}  // namespace reprise
