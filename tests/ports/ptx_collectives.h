// What a warp does together in PTX: shuffles, votes, barriers of a warp, matrices and their products; asynchronous copies; atomics.
// Here because these are the instructions of cuda/warp.h's inline assembly, which run nowhere else without a card.
#pragma once

#include <string_view>
#include <vector>

#include "tests/ports/ptx_program.h"

namespace reprise::ptx {

struct Collective {
  enum Place : uint8_t { kResult, kResultPredicate, kWord, kPredicate, kMask, kNumber, kSharedAddress, kGlobalAddress };

  std::string_view opcode;
  Step step = nullptr;
  bool meets = false;  // the lanes of its mask, of the whole warp where it has none, must come at once
  std::vector<Place> form;
};

// Null where the opcode is none of these.
const Collective* find_collective(std::string_view opcode);

}  // namespace reprise::ptx
