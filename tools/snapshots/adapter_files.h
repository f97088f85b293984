// The adapters of a training as PEFT keeps them: written when it ends, and taken in again by --init-adapter, which takes llama.cpp's, too.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lib/trainer.h"
#include "tools/formats/snapshot_directory.h"
#include "tools/recipes/recipe.h"
#include "tools/weights/adapter.h"

namespace reprise {

// The adapter of the recipe's model that these weights hold, as a snapshot has them. The recipe has `lora`. Throws UserError.
Adapter find_adapter(const Recipe& recipe, std::shared_ptr<const WeightSource> weights);

// PEFT's folder: the adapter, and of a model with new tokens its tokenizer, which knows them. It is this program's if its weights are.
FolderKind adapter_folder(const Recipe& recipe);
void write_adapter(const Adapter& adapter, const Recipe& recipe, const SnapshotDirectory& folder);

// Writes PEFT's folder, which adapter_folder() describes, whole or not at all. The recipe has `lora`. Throws UserError.
void save_adapter(const Trainer& trainer, const Recipe& recipe, SnapshotDirectory& folder);

// Sets the trainer's adapters, and modules that are trained whole, to those of PEFT's folder, or of llama.cpp's file, which must be of the
// recipe's layers, ranks, scales and modules; only a file has its B multiplied for another scale, and the answer says so, "" where nothing
// is to be said. Throws UserError, before anything is changed.
[[nodiscard]] std::string load_adapter(const Trainer& trainer, const Recipe& recipe, const std::string& path);

}  // namespace reprise
