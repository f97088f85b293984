// Snapshots: a folder with weights, optimizer state and the step, whole or not at all, and every byte of it checked when it is read.
// Here because resuming must give the same bits, under any budget or schedule.
#pragma once

#include <string>
#include <vector>

#include "lib/trainer.h"
#include "tools/formats/snapshot_directory.h"
#include "tools/recipes/recipe.h"

namespace reprise {

constexpr int kSnapshotFormat = 1;

const std::vector<std::string>& snapshot_files();

// Throws UserError; the folder then is as it was.
void save_snapshot(const Trainer& trainer, const Recipe& recipe, SnapshotDirectory& folder);

// Sets state and step. Answers warnings: whatever makes the run another one than an uninterrupted run would be. Throws UserError, before
// anything is changed, where a checksum is not the one that was saved.
std::vector<std::string> resume_snapshot(Trainer& trainer, const Recipe& recipe, const std::string& folder);

}  // namespace reprise
