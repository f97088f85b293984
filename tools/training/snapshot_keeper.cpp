// See snapshot_keeper.h.
#include "tools/training/snapshot_keeper.h"

#include <algorithm>
#include <filesystem>
#include <map>

namespace reprise {
namespace {

namespace fs = std::filesystem;

bool holds_snapshot(const std::string& folder) { return fs::exists(folder + "/training.json"); }

}  // namespace

SnapshotKeeper::SnapshotKeeper(const std::string& folder, uint64_t keep, bool keep_best) : last_(folder, snapshot_files()), keep_(keep) {
  if (keep > 1 && holds_snapshot(last_.path())) saved_step_ = read_facts(last_.path()).step;
  if (!keep_best) return;
  best_.emplace(last_.path() + ".best", snapshot_files());
  if (holds_snapshot(best_->path())) best_score_ = read_facts(best_->path()).score;
}

void SnapshotKeeper::save(const Trainer& trainer, const Recipe& recipe, SnapshotFacts facts) {
  const bool keeps_the_one_before = keep_ > 1 && saved_step_ != 0 && saved_step_ != trainer.step && holds_snapshot(last_.path());
  save_snapshot(trainer, recipe, facts, last_, keeps_the_one_before ? last_.path() + ".step-" + std::to_string(saved_step_) : "");
  saved_step_ = trainer.step;
  remove_earlier();
}

void SnapshotKeeper::save_if_best(const Trainer& trainer, const Recipe& recipe, SnapshotFacts facts, double score) {
  if (!best_ || (best_score_ && score <= *best_score_)) return;
  facts.score = score;
  save_snapshot(trainer, recipe, facts, *best_, "");
  best_score_ = score;
}

// Of DIR.step-N the lowest N go, as far as they hold nothing but a snapshot.
void SnapshotKeeper::remove_earlier() {
  if (keep_ <= 1) return;
  const fs::path last = last_.path();
  const std::string start = last.filename().string() + ".step-";
  std::map<uint64_t, std::string> earlier;
  for (const auto& entry : fs::directory_iterator(last.parent_path())) {
    const std::string name = entry.path().filename().string();
    const std::string step = name.compare(0, start.size(), start) == 0 ? name.substr(start.size()) : "";
    const bool is_number = !step.empty() && step.size() <= 19 && std::all_of(step.begin(), step.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (is_number && holds_snapshot(entry.path().string())) earlier[std::stoull(step)] = entry.path().string();
  }
  while (earlier.size() > keep_ - 1) {
    remove_snapshot(earlier.begin()->second, snapshot_files());
    earlier.erase(earlier.begin());
  }
}

}  // namespace reprise
