// Predicts a step's seconds from a profile's measured rows, a board's rates, or assumed rates. A
// user chooses from a table of plans by their time.
#pragma once

#include <optional>
#include <string>

#include "tools/plan/costs/board.h"
#include "tools/plan/planning/planner.h"

namespace reprise {

class StepTimes {
 public:
  // Uses `profiled`, a model of the recipe with measured costs, if it is not null; else `board`;
  // else assumed rates. Keeps no reference.
  StepTimes(const Recipe& recipe, const SolvedModel* profiled, const std::optional<Board>& board);

  // Returns the seconds of a plan that fits. The model must be solved without measured costs. With
  // a profile these are the measured seconds of the recipe's own step, scaled by the estimated
  // work. On a board they are the roofline, a lower bound. Else they follow from flops and bytes at
  // the rates of cost.h.
  double seconds(const SolvedModel& model, const PlannedModel& planned) const;

  // Returns the work of a step of the plan, divided by the work of the recipe's step that stores
  // everything. Recomputation and waiting for streamed weights count.
  double work(const SolvedModel& model, const PlannedModel& planned) const;

  bool are_profiled() const { return profiled_seconds_.has_value(); }

  // Returns the source of the seconds as text: "the profile, scaled by the work".
  const std::string& rest_on() const { return rest_on_; }

 private:
  double reference_work_ = 0;  // flop equivalents of the recipe's step that stores everything
  std::optional<double> profiled_seconds_;
  std::optional<BoardProcessor> processor_;
  std::string rest_on_;
};

}  // namespace reprise
