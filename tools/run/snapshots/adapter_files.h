// The adapter of a training as files: written in PEFT's format when the training ends, and read by
// --init-adapter, which also reads llama.cpp's files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lib/trainer.h"
#include "tools/files/adapters/adapter.h"
#include "tools/files/io/snapshot_directory.h"
#include "tools/plan/recipes/recipe.h"

namespace reprise {

// Returns the adapter in the weights of a snapshot. The recipe must have `lora`. Throws UserError.
Adapter find_adapter(const Recipe& recipe, std::shared_ptr<const WeightSource> weights);

// Returns which files PEFT's folder may contain: the adapter, and the tokenizer if the model has
// new tokens. A folder counts as written by this program if its weights have our mark.
FolderKind adapter_folder(const Recipe& recipe);
// Writes the files of an adapter to `folder`.
void write_adapter(const Adapter& adapter, const Recipe& recipe, const SnapshotDirectory& folder);

// Returns lines with the facts that a user needs to load the adapter in `folder`. The first line
// names its base. If the base's own files lack the token that ends a reply, another line names the
// ids at which generation must stop. Returns none if the recipe names no model files, or if the
// model is not a language model. Omits lines whose facts the model's files no longer give.
std::vector<std::string> adapter_lines(const Recipe& recipe, const std::string& folder);

// Writes PEFT's folder (see adapter_folder()), completely or not at all. The recipe must have
// `lora`. Throws UserError.
void save_adapter(const Trainer& trainer, const Recipe& recipe, SnapshotDirectory& folder);

// Sets the trainer's adapters, and the modules that are trained as a whole, from PEFT's folder or
// llama.cpp's file. Layers, ranks, scales and modules must be those of the recipe. As an exception,
// a llama.cpp file may have another scale; its B is then multiplied. Returns a description of this
// conversion; "" if there was none. Throws UserError before State is changed.
[[nodiscard]] std::string load_adapter(const Trainer& trainer, const Recipe& recipe, const std::string& path);

}  // namespace reprise
