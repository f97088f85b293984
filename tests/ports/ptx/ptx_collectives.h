// PTX instructions of a whole warp (shuffles, votes, warp barriers, matrix loads and products), and
// asynchronous copies. Most come from the inline assembly of cuda/warp.h. Without a card, that
// assembly runs only in the PTX machine.
#pragma once

#include <string_view>
#include <vector>

#include "tests/ports/ptx/ptx_program.h"

namespace reprise::ptx {

struct Collective {
  enum Place : uint8_t { kResult, kResultPredicate, kWord, kPredicate, kMask, kNumber, kSharedAddress, kGlobalAddress };

  std::string_view opcode;
  Step step = nullptr;
  bool meets = false;  // true: runs when all lanes of the mask have arrived (of the warp if there is no mask)
  std::vector<Place> form;
};

// Returns the entry of `opcode`; null if the opcode is not a known collective.
const Collective* find_collective(std::string_view opcode);

}  // namespace reprise::ptx
