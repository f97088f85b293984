// The snapshots that a run keeps: the last one in DIR, some before it in DIR.step-N, the best one in DIR.best.
// Here because which ones stay is a matter of the run's options, and how one is written is not.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "tools/snapshots/snapshot.h"

namespace reprise {

class SnapshotKeeper {
 public:
  // `keep`: so many of this run's snapshots altogether, the last included; those of earlier runs stay. A run that goes on from another one
  // also goes on from its best. Takes the folders for this process; throws UserError as SnapshotDirectory does.
  SnapshotKeeper(const std::string& folder, uint64_t keep, bool keep_best, bool goes_on);

  void save(const Trainer& trainer, const Recipe& recipe, SnapshotFacts facts);
  // Whether the score is higher than that of the best so far, which an earlier run may have left; false where the best is not kept.
  bool is_best(double score) const { return best_ && (!best_score_ || score > *best_score_); }
  // Into DIR.best.
  void save_best(const Trainer& trainer, const Recipe& recipe, SnapshotFacts facts, double score);

 private:
  SnapshotDirectory last_;
  std::optional<SnapshotDirectory> best_;
  std::optional<double> best_score_;
  const uint64_t keep_;
  uint64_t saved_step_ = 0;          // of DIR; 0: there is none, or it need not be known
  std::deque<std::string> put_aside_;  // by this run, the earliest first
};

}  // namespace reprise
