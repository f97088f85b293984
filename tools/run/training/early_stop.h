// Decides when a training ends because its evaluations no longer improve. The counts are saved in
// the snapshot, so that a resumed run continues them.
#pragma once

#include <cmath>

#include "tools/run/snapshots/snapshot.h"

namespace reprise {

// Counts the evaluations since the best one.
class EarlyStop {
 public:
  // Starts with `before`, the history in the snapshot that the run resumes; empty for a new run.
  EarlyStop(uint64_t patience, const std::optional<LossHistory>& before)
      : patience_(patience), history_(before.value_or(LossHistory())), has_any_(before.has_value()) {}

  // True if the evaluation after `step` has already been counted.
  bool knows(uint64_t step) const { return has_any_ && history_.step == step; }
  // Counts the evaluation after `step`; repeated calls for one step count once. A loss that is not
  // finite is not an improvement.
  void take(uint64_t step, double loss) {
    if (knows(step)) return;
    has_any_ = true;
    history_.step = step;
    const bool gains = std::isfinite(loss) && (!history_.best_loss || loss < *history_.best_loss);
    history_.without_gain = gains ? 0 : history_.without_gain + 1;
    if (!gains) return;
    history_.best_loss = loss;
    history_.best_step = step;
  }
  // True if the training should end: there was no improvement in `patience` evaluations.
  bool is_due() const { return history_.without_gain >= patience_; }
  const LossHistory& history() const { return history_; }

 private:
  uint64_t patience_;
  LossHistory history_;
  bool has_any_;
};

}  // namespace reprise
