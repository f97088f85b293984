// See snapshot_store.h.
#include "tools/run/snapshots/snapshot_store.h"

#include <filesystem>
#include <map>

#include "tools/files/io/error.h"
#include "tools/files/io/output.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

bool holds_snapshot(const std::string& folder) { return fs::exists(folder + "/training.json"); }

}  // namespace

SnapshotStore::SnapshotStore(const KeptSnapshots& kept)
    : last_(kept.folder, snapshot_folder(), kept.inputs), keep_(kept.keep) {
  if (keep_ > 1 && holds_snapshot(last_.path())) saved_step_ = read_facts(last_.path()).step;
  const bool goes_on = !kept.resumed.empty(), is_same = goes_on && is_same_file(kept.resumed, last_.path());
  if (is_same && kept.continues && keep_ > 1) take_up_put_aside();
  if (!kept.overwrite && !is_same) require_older(last_.path(), goes_on ? read_facts(kept.resumed).step : 0);
  if (!kept.keeps_best) return;
  best_.emplace(last_.path() + ".best", snapshot_folder(), kept.inputs);
  if (goes_on && holds_snapshot(best_->path())) best_score_ = read_facts(best_->path()).score;
  if (!kept.overwrite && !goes_on) require_older(best_->path(), 0);
}

void SnapshotStore::require_older(const std::string& folder, uint64_t first_step) const {
  if (!holds_snapshot(folder)) return;
  const uint64_t step = read_facts(folder).step;
  if (step <= first_step) return;
  throw UserError(folder + ": holds a snapshot after step " + std::to_string(step) + ", which this run, from step " +
                  std::to_string(first_step) +
                  ", does not go on from: it would be lost; give --continue to go on, --overwrite to begin anew, or "
                  "another --save");
}

// Finds the earlier snapshots of the run that is continued, in the order of their steps.
void SnapshotStore::take_up_put_aside() {
  const fs::path last = last_.path();
  const std::string start = last.filename().string() + ".step-";
  std::map<uint64_t, std::string> by_step;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(last.parent_path(), ignored)) {
    const std::string name = entry.path().filename().string(),
                      step = name.starts_with(start) ? name.substr(start.size()) : "";
    const bool is_step =
        !step.empty() && step.size() <= 19 && step.find_first_not_of("0123456789") == std::string::npos;
    if (is_step && std::stoull(step) < saved_step_ && snapshot_folder().is_own(entry.path().string()))
      by_step[std::stoull(step)] = entry.path().string();
  }
  for (const auto& [step, folder] : by_step) put_aside_.push_back(folder);
}

void SnapshotStore::save(const Trainer& trainer, const Recipe& recipe, SnapshotFacts facts) {
  std::string aside;
  if (keep_ > 1 && saved_step_ != 0 && saved_step_ != trainer.step)
    aside = last_.path() + ".step-" + std::to_string(saved_step_);
  if (!aside.empty() && holds_snapshot(aside)) aside.clear();  // an earlier run has already written it
  save_snapshot(trainer, recipe, facts, last_, aside);
  if (!aside.empty()) put_aside_.push_back(aside);
  saved_step_ = trainer.step;
  for (; put_aside_.size() > keep_ - 1; put_aside_.pop_front()) remove_snapshot(put_aside_.front(), snapshot_files());
}

void SnapshotStore::save_best(const Trainer& trainer, const Recipe& recipe, SnapshotFacts facts, double score) {
  facts.score = score;
  save_snapshot(trainer, recipe, facts, *best_, "");
  best_score_ = score;
}

}  // namespace reprise
