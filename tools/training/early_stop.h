// When a training ends because its evaluations show no gain any more.
// Here so that a resumed run goes on counting where the snapshot left off.
#pragma once

#include <cmath>

#include "tools/snapshots/snapshot.h"

namespace reprise {

class EarlyStop {
 public:
  // `before`: what the snapshot that the run goes on from says.
  EarlyStop(uint64_t patience, const std::optional<LossHistory>& before) : patience_(patience), history_(before.value_or(LossHistory())), has_any_(before.has_value()) {}

  bool knows(uint64_t step) const { return has_any_ && history_.step == step; }
  // A step's evaluation counts once. A loss that is not finite is no gain.
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
  bool is_due() const { return history_.without_gain >= patience_; }
  const LossHistory& history() const { return history_; }

 private:
  uint64_t patience_;
  LossHistory history_;
  bool has_any_;
};

}  // namespace reprise
