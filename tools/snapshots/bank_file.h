// A snapshot as a bank of a board's flash, and back: a file with the bytes of lib/state_bank.h.
// Here because a training moves between a host, whose snapshots are folders by name, and a board, which has neither names nor room.
#pragma once

#include <string>
#include <vector>

#include "lib/port.h"
#include "tools/lowering/owned_plan.h"
#include "tools/recipes/recipe.h"

namespace reprise {

// A recipe, a plan of it, and the port whose memory holds State meanwhile.
struct BankTraining {
  const Port& port;
  const Recipe& recipe;
  const OwnedPlan& plan;
  std::vector<std::string> inputs = {};  // files and folders that must not be replaced
};

struct BankReport {
  uint64_t step = 0, bytes = 0;  // bytes of the bank
  std::string kernel_set;
};

// The bank of a snapshot of that recipe, to be written where a region of flash begins whose other bank is erased. Throws UserError where the snapshot is
// refused as one that a training would go on from, and where a bank cannot hold the training: `image` then is as it was.
BankReport write_bank_file(const BankTraining& training, const std::string& snapshot, const std::string& image);

// The snapshot of a bank, or of the newest of a region with both. Throws UserError where no bank is whole, or it is of another plan: `folder` then is as
// it was.
BankReport write_bank_snapshot(const BankTraining& training, const std::string& image, const std::string& folder);

}  // namespace reprise
