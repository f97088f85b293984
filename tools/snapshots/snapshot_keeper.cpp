// See snapshot_keeper.h.
#include "tools/snapshots/snapshot_keeper.h"

#include <filesystem>

namespace reprise {
namespace {

namespace fs = std::filesystem;

bool holds_snapshot(const std::string& folder) { return fs::exists(folder + "/training.json"); }

}  // namespace

SnapshotKeeper::SnapshotKeeper(const std::string& folder, uint64_t keep, bool keep_best, bool goes_on)
    : last_(folder, snapshot_files()), keep_(keep) {
  if (keep > 1 && holds_snapshot(last_.path())) saved_step_ = read_facts(last_.path()).step;
  if (!keep_best) return;
  best_.emplace(last_.path() + ".best", snapshot_files());
  if (goes_on && holds_snapshot(best_->path())) best_score_ = read_facts(best_->path()).score;
}

void SnapshotKeeper::save(const Trainer& trainer, const Recipe& recipe, SnapshotFacts facts) {
  std::string aside;
  if (keep_ > 1 && saved_step_ != 0 && saved_step_ != trainer.step) aside = last_.path() + ".step-" + std::to_string(saved_step_);
  if (!aside.empty() && holds_snapshot(aside)) aside.clear();  // it is there already, of an earlier run
  save_snapshot(trainer, recipe, facts, last_, aside);
  if (!aside.empty()) put_aside_.push_back(aside);
  saved_step_ = trainer.step;
  for (; put_aside_.size() > keep_ - 1; put_aside_.pop_front()) remove_snapshot(put_aside_.front(), snapshot_files());
}

void SnapshotKeeper::save_best(const Trainer& trainer, const Recipe& recipe, SnapshotFacts facts, double score) {
  facts.score = score;
  save_snapshot(trainer, recipe, facts, *best_, "");
  best_score_ = score;
}

}  // namespace reprise
