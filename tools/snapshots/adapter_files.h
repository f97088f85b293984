// The adapters of a training as PEFT keeps them: written when it ends, and taken in again by --init-adapter.
#pragma once

#include <string>

#include "lib/trainer.h"
#include "tools/recipes/recipe.h"

namespace reprise {

// Writes PEFT's folder whole or not at all. One of before is replaced, a folder with other files is refused. The recipe has `lora`.
// Throws UserError.
void save_adapter(const Trainer& trainer, const Recipe& recipe, const std::string& folder);

// Sets the trainer's adapters to those of PEFT's folder, which must be of the recipe's layers, rank and scale. Throws UserError, before
// anything is changed.
void load_adapter(const Trainer& trainer, const Recipe& recipe, const std::string& folder);

}  // namespace reprise
