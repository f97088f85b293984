// The snapshots that a run keeps: the last one in DIR, earlier ones in DIR.step-N, the best one in
// DIR.best. The run's options decide how many are kept.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "tools/run/snapshots/snapshot.h"

namespace reprise {

// Where a run saves, and which snapshots it keeps.
struct KeptSnapshots {
  std::string folder;
  uint64_t keep = 1;  // number of this run's snapshots, including the last one; snapshots of other runs are not removed
  bool keeps_best = false, overwrite = false;
  std::string resumed = {};  // folder of the snapshot that the run resumes; "" for a new run
  bool continues = false;    // true for --continue: earlier snapshots of the run that is continued count, too
  std::vector<std::string> inputs = {};  // files and folders that must not be replaced
};

// Saves the snapshots of a run, and removes those that exceed the limit.
class SnapshotStore {
 public:
  // Locks the folders for this process. A resumed run starts with the best score so far. A run that
  // continues `folder` and keeps several snapshots counts the earlier ones there. Throws UserError
  // like SnapshotDirectory. Throws it too if `folder` or `folder`.best has a snapshot of a later
  // step that the run does not resume, unless `overwrite` is set.
  explicit SnapshotStore(const KeptSnapshots& kept);

  // Saves to DIR; the previous snapshot may move to DIR.step-N.
  void save(const Trainer& trainer, const Recipe& recipe, SnapshotFacts facts);
  // True if the score is higher than the best score so far, including that of an earlier run. False
  // if the run does not keep the best snapshot.
  bool is_best(double score) const { return best_ && (!best_score_ || score > *best_score_); }
  // Saves to DIR.best.
  void save_best(const Trainer& trainer, const Recipe& recipe, SnapshotFacts facts, double score);

 private:
  void require_older(const std::string& folder, uint64_t first_step) const;
  void take_up_put_aside();

  SnapshotDirectory last_;
  std::optional<SnapshotDirectory> best_;
  std::optional<double> best_score_;
  const uint64_t keep_;
  uint64_t saved_step_ = 0;            // step of the snapshot in DIR; 0: there is none, or it is not needed
  std::deque<std::string> put_aside_;  // folders DIR.step-N of this run and the runs that it continues, earliest first
};

}  // namespace reprise
