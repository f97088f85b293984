// The snapshots that a run keeps: the last one in DIR, some before it in DIR.step-N, the best one in DIR.best.
// Here because which ones stay is a matter of the run's options, and how one is written is not.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "tools/snapshots/snapshot.h"

namespace reprise {

struct KeptSnapshots {
  std::string folder;
  uint64_t keep = 1;                // snapshots of this run altogether, the last included; those of other runs stay
  bool keeps_best = false, overwrite = false;
  std::string resumed = {};         // the folder of the snapshot that the run goes on from; "": it begins
  bool continues = false;           // by --continue: what the run before has put aside counts, too
  std::vector<std::string> inputs = {};  // files and folders that must not be replaced
};

class SnapshotKeeper {
 public:
  // Takes the folders for this process. A run that goes on from another one also goes on from its best, and one that continues `folder`
  // counts what was put aside there, if it keeps more than one. Throws UserError as SnapshotDirectory does, and where `folder` or `folder`.best
  // holds a snapshot of more steps than the run begins with, which it does not go on from, unless it overwrites.
  explicit SnapshotKeeper(const KeptSnapshots& kept);

  void save(const Trainer& trainer, const Recipe& recipe, SnapshotFacts facts);
  // Whether the score is higher than that of the best so far, which an earlier run may have left; false where the best is not kept.
  bool is_best(double score) const { return best_ && (!best_score_ || score > *best_score_); }
  // Into DIR.best.
  void save_best(const Trainer& trainer, const Recipe& recipe, SnapshotFacts facts, double score);

 private:
  void require_older(const std::string& folder, uint64_t first_step) const;
  void take_up_put_aside();

  SnapshotDirectory last_;
  std::optional<SnapshotDirectory> best_;
  std::optional<double> best_score_;
  const uint64_t keep_;
  uint64_t saved_step_ = 0;          // of DIR; 0: there is none, or it need not be known
  std::deque<std::string> put_aside_;  // by this run and what it continues, the earliest first
};

}  // namespace reprise
