// Implements step_times.h. With a profile, its seconds are scaled by the work of a plan. Otherwise
// flops and bytes are divided by the rates of a board, or by assumed rates.
#include "tools/plan/costs/step_times.h"

namespace reprise {
namespace {

constexpr double kAssumedFlops = 320e9;  // flop/s; with kFlopsPerByte of cost.h the assumed memory has 20 GB/s

}  // namespace

StepTimes::StepTimes(const Recipe& recipe, const SolvedModel* profiled, const std::optional<Board>& board) {
  reference_work_ = recipe.accumulate * solve_model(recipe).forward_backward_cost;
  if (profiled != nullptr) {
    profiled_seconds_ = recipe.accumulate * profiled->forward_backward_cost;
    rest_on_ = "the profile, scaled by the work";
  } else if (board) {
    processor_ = board->processor;
    rest_on_ = "flops and bytes at the rates of " + board->name + ": a bound, not a measurement";
  } else {
    rest_on_ =
        "flops and bytes at an assumed 320 GFLOP/s and 20 GB/s; --board takes a board's rates, --profile what a "
        "machine has measured";
  }
}

double StepTimes::work(const SolvedModel& model, const PlannedModel& planned) const {
  return model.recipe.accumulate * model.forward_backward_cost * (1 + planned.extra_forward_cost) /
         (1 - planned.stall_share) / reference_work_;
}

double StepTimes::seconds(const SolvedModel& model, const PlannedModel& planned) const {
  if (profiled_seconds_) return work(model, planned) * *profiled_seconds_;
  if (processor_) return step_roofline(planned.plan, *processor_, model.recipe).seconds;
  return work(model, planned) * reference_work_ / kAssumedFlops;
}

}  // namespace reprise
