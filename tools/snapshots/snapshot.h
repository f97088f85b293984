// Snapshots: a folder with weights, optimizer state and the step, whole or not at all, and every byte of it checked when it is read.
// Here because resuming must give the same bits, under any budget or schedule.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lib/trainer.h"
#include "tools/data/fingerprint.h"
#include "tools/formats/checksum.h"
#include "tools/formats/snapshot_directory.h"
#include "tools/recipes/recipe.h"
#include "tools/snapshots/base_weights.h"

namespace reprise {

constexpr int kSnapshotFormat = 1;

const std::vector<std::string>& snapshot_files();

// Returns how many bytes a snapshot of the plan takes on a disk, at most.
uint64_t snapshot_bytes(const Plan& plan);

// The folder of a snapshot. It is this program's if its training.json is, and each other file has our mark or the size that training.json says.
const FolderKind& snapshot_folder();

// What the evaluations of a training that may stop early have shown.
struct LossHistory {
  uint64_t step = 0;                // of the last evaluation
  std::optional<double> best_loss;  // none: none was finite
  uint64_t best_step = 0;
  uint64_t without_gain = 0;        // evaluations since, none of which had a smaller loss
};

// What a snapshot says of the training beside its state.
struct SnapshotFacts {
  uint64_t step = 0;                     // as read_facts found it, as the kernel set is; a snapshot is saved with its trainer's
  DataFingerprint data;                  // that it was trained on
  std::vector<std::string> class_names;  // none where classes have no names
  std::optional<double> score;           // of the evaluation that chose it as the best: higher is better
  std::optional<BaseWeights> base;       // of a training of adapters
  std::map<std::string, std::string> texts;  // of the model's files: what ModelFiles::text_sums() says
  std::optional<LossHistory> losses = {};    // of a training that may stop early
  std::string kernel_set = {};
};

// Throws UserError; the folder then is as it was. `keep_old_as`: see SnapshotDirectory::commit.
void save_snapshot(const Trainer& trainer, const Recipe& recipe, const SnapshotFacts& facts, SnapshotDirectory& folder,
                   const std::string& keep_old_as = "");
// What SnapshotFacts::texts is of a training that begins now; none where the model's files are not there.
std::map<std::string, std::string> texts_of(const Recipe& recipe);
// Of a folder that holds a snapshot. Throws UserError where training.json cannot be read or is damaged.
SnapshotFacts read_facts(const std::string& folder);

// The recipe that a snapshot was trained from, with the model's files where `recipe` names them if they are no longer where they were.
// Refuses a folder that holds no snapshot of the recipe's model, or a damaged one, or one whose adapters were trained with another rank,
// scale or other targets than the recipe says. Throws UserError. `warnings` get what else of the model's files has changed since.
Recipe trained_recipe(const Recipe& recipe, const std::string& folder, std::vector<std::string>& warnings);

// Refuses a snapshot whose classes have other names than the data's; either may have none. Throws UserError.
void require_same_classes(const std::string& folder, const std::vector<std::string>& names);

// Sets state and step. `data`: of a training that goes on, null where the weights are used as they are. Throws UserError before anything is
// changed: where trained_recipe does, where a checksum is not the one that was saved, where a training would go on with another optimizer,
// and where weights would be used as what was not trained, by the scale of adapters, by mean and std of pixels, or by another tokenizer.
// Such differences of a training that goes on are among the warnings that are answered, of whatever makes it another one than an
// uninterrupted run.
std::vector<std::string> resume_snapshot(Trainer& trainer, const Recipe& recipe, const DataFingerprint* data, const std::string& folder);

}  // namespace reprise
