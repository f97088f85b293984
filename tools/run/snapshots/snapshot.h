// Snapshots: a folder with weights, optimizer state and the step, which is written completely or
// not at all. Its files have checksums, which are verified when they are read. A resumed training
// gets the same bits as an uninterrupted one, with every budget and schedule.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lib/trainer.h"
#include "tools/files/formats/checksum.h"
#include "tools/files/io/snapshot_directory.h"
#include "tools/plan/recipes/recipe.h"
#include "tools/run/data/fingerprint.h"
#include "tools/run/snapshots/base_weights.h"

namespace reprise {

constexpr int kSnapshotFormat = 1;

const std::vector<std::string>& snapshot_files();

// Returns an upper bound for the bytes of the plan's snapshot on disk.
uint64_t snapshot_bytes(const Plan& plan);

// Returns the kind of a snapshot's folder. A folder counts as written by this program if its
// training.json has our fields, and if each other file has our mark or the size in training.json.
const FolderKind& snapshot_folder();

// The evaluations of a training that may stop early.
struct LossHistory {
  uint64_t step = 0;                // step of the last evaluation
  std::optional<double> best_loss;  // unset if no loss was finite
  uint64_t best_step = 0;
  uint64_t without_gain = 0;  // number of evaluations after the best one
};

// Facts that a snapshot stores in addition to State.
struct SnapshotFacts {
  // `step` and `kernel_set` are set by read_facts(); save_snapshot() uses the trainer's values
  // instead.
  uint64_t step = 0;
  DataFingerprint data;                  // identifies the training set
  std::vector<std::string> class_names;  // empty if the classes have no names
  std::optional<double> score;           // score of the evaluation, in a best snapshot; higher is better
  std::optional<BaseWeights> base;       // set if adapters were trained
  std::map<std::string, std::string> texts;  // checksums of the model's texts (ModelFiles::text_sums)
  std::optional<LossHistory> losses = {};    // set if the training may stop early
  std::string kernel_set = {};
};

// Writes a snapshot. If it fails, throws UserError and leaves the folder unchanged. `keep_old_as`:
// see SnapshotDirectory::commit.
void save_snapshot(const Trainer& trainer, const Recipe& recipe, const SnapshotFacts& facts, SnapshotDirectory& folder,
                   const std::string& keep_old_as = "");
// Returns the value of SnapshotFacts::texts for a training that begins now. The checksums are those
// of data.tokenizer if the recipe has it, otherwise of the model's files; empty if there are none.
std::map<std::string, std::string> texts_of(const Recipe& recipe);
// Reads the facts of the snapshot in `folder`. Throws UserError if training.json is missing or
// damaged.
SnapshotFacts read_facts(const std::string& folder);

// Returns the recipe with which a snapshot was trained. If the model's files have moved, it has the
// paths of `recipe`. Throws UserError if the folder has no snapshot of the recipe's model, or a
// damaged one. Throws it too if its adapters have another rank, scale or other targets. Adds other
// changes of the model's files to `warnings`.
Recipe trained_recipe(const Recipe& recipe, const std::string& folder, std::vector<std::string>& warnings);

// Throws UserError if the names of the snapshot's classes differ from `names`. Either list may be
// empty; then nothing is compared.
void require_same_classes(const std::string& folder, const std::vector<std::string>& names);

// Sets State and step from a snapshot. `data` is the training set if training continues, or null if
// the weights are only used. Returns warnings: differences because of which the training may differ
// from an uninterrupted run. Throws UserError before State is changed if
//   trained_recipe() would throw, or a checksum does not match;
//   a training would continue with another optimizer;
//   weights would be used with another scale of adapters, other mean and std of pixels, or
//   another tokenizer than in training (only a warning if training continues).
// If moments do not fit, it throws after the weights were read; State must then not be used.
std::vector<std::string> resume_snapshot(Trainer& trainer, const Recipe& recipe, const DataFingerprint* data,
                                         const std::string& folder);

}  // namespace reprise
