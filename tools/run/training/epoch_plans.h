// The program's plans, completed with the step at which a cosine schedule ends. A recipe may give
// this end in passes over the training set. Plans are made without data, and the steps in a pass
// are known only when the data set is open.
#pragma once

#include <deque>
#include <vector>

#include "tools/plan/recipes/recipe.h"
#include "tools/run/data/dataset.h"
#include "tools/run/session/compiled_plan.h"

namespace reprise {

// Returns the number of steps in `epochs` passes over `data`, rounded up, at least 1. Throws
// UserError if it exceeds 2^32 - 1.
uint64_t steps_of_epochs(double epochs, const Recipe& recipe, const Dataset& data);

// The plans of a program for one data set.
class EpochPlans {
 public:
  // Copies the plans if their cosine ends by passes; `compiled` must outlive this object. Throws
  // UserError if the warm-up does not end before the cosine.
  EpochPlans(const CompiledPlan& compiled, const Recipe& recipe, const Dataset& data);
  EpochPlans(const EpochPlans&) = delete;
  EpochPlans& operator=(const EpochPlans&) = delete;

  // Returns the program's plans. They are the original ones if the cosine does not end by passes.
  const CompiledPlan& compiled() const { return plans_.empty() ? original_ : copies_.front(); }
  // Returns the step at which the learning rate reaches 0; 0 if there is none.
  uint64_t cosine_steps() const { return steps_; }

 private:
  const CompiledPlan& original_;
  uint64_t steps_ = 0;
  std::deque<Plan> plans_;            // a deque, because written_ and copies_ point into it
  std::vector<WrittenPlan> written_;  // copies of compiled.plans that point into plans_
  std::vector<CompiledPlan> copies_;  // empty, or one element that replaces original_
};

}  // namespace reprise
