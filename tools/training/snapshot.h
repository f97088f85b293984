// Snapshots: a folder with weights, optimizer state and the step, whole or not at all.
// Here because resuming must give the same bits, under any budget or schedule.
#pragma once

#include <string>
#include <vector>

#include "lib/trainer.h"
#include "tools/recipes/recipe.h"

namespace reprise {

constexpr int kSnapshotFormat = 1;

const std::vector<std::string>& snapshot_files();

// Throws UserError; the folder then is as it was.
void save_snapshot(const Trainer& trainer, const Recipe& recipe, const std::string& folder);

// Sets state and step. Answers a warning ("" for none): another kernel set may give other bits. Throws UserError.
std::string resume_snapshot(Trainer& trainer, const Recipe& recipe, const std::string& folder);

}  // namespace reprise
