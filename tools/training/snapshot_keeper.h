// The snapshots that a run keeps: the last one in DIR, some before it in DIR.step-N, the best one in DIR.best.
// Here because which ones stay is a matter of the run's options, and how one is written is not.
#pragma once

#include <optional>
#include <string>

#include "tools/training/snapshot.h"

namespace reprise {

class SnapshotKeeper {
 public:
  // `keep`: so many snapshots altogether, the last included. Takes the folders for this process; throws UserError as SnapshotDirectory does.
  SnapshotKeeper(const std::string& folder, uint64_t keep, bool keep_best);

  void save(const Trainer& trainer, const Recipe& recipe, SnapshotFacts facts);
  // Saves into DIR.best where the score is higher than that of the best so far, which an earlier run may have left.
  void save_if_best(const Trainer& trainer, const Recipe& recipe, SnapshotFacts facts, double score);

 private:
  void remove_earlier();

  SnapshotDirectory last_;
  std::optional<SnapshotDirectory> best_;
  std::optional<double> best_score_;
  const uint64_t keep_;
  uint64_t saved_step_ = 0;  // of DIR; 0: there is none, or it need not be known
};

}  // namespace reprise
