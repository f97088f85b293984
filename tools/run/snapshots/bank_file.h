// Converts a snapshot to a bank for a board's flash, and back. The bank is a file with the bytes
// that lib/state_bank.h defines. A host's snapshot is a folder that stores tensors by name; a board
// has neither names nor the space for them.
#pragma once

#include <string>
#include <vector>

#include "lib/port.h"
#include "tools/plan/lowering/owned_plan.h"
#include "tools/plan/recipes/recipe.h"

namespace reprise {

// The inputs of a conversion: a recipe, its plan, and a port, whose memory stores State during the
// conversion.
struct BankTraining {
  const Port& port;
  const Recipe& recipe;
  const OwnedPlan& plan;
  std::vector<std::string> inputs = {};  // files and folders that must not be replaced
};

// The result of a conversion.
struct BankReport {
  uint64_t step = 0, bytes = 0;  // bytes: size of the bank
  std::string kernel_set;
};

// Writes the bank of a snapshot of that recipe to `image`, which is for the beginning of a flash
// region whose other bank is erased. Throws UserError and leaves `image` unchanged if a training
// could not resume the snapshot, or if a bank cannot store the training.
BankReport write_bank_file(const BankTraining& training, const std::string& snapshot, const std::string& image);

// Writes a snapshot with the contents of a bank, or of the newest bank in a region. Throws
// UserError and leaves `folder` unchanged if no bank is complete, or if the bank belongs to another
// plan.
BankReport write_bank_snapshot(const BankTraining& training, const std::string& image, const std::string& folder);

}  // namespace reprise
