// The checker's notes on one tensor of a plan.
#pragma once

#include "lib/check_update.h"

namespace reprise {

constexpr uint32_t kNoRow = ~0u;

// The caller gives check_marks(plan) of them, of any content.
struct CheckMark {
  uint32_t above = kNoSlot;  // address-ordered list of the slots not yet seen to be dead; of a spilled block the one beneath
  uint32_t touched = 0;      // number of the latest row that names it, counted from 1 through all programs
  uint32_t filled_from = 0;  // in flight as a destination: the source's mark + 1
  uint32_t drained_by = 0;   // in flight as a source: transfers under way
  bool written = false;
  bool linked = false;  // in the list
  proof::UpdateMark update = {};
  uint32_t end_row = 0;  // it lives until that row: 0 before its birth, kNoRow in State and Carried
};

// Marks stand in the order State, Carried, the slots of the program being checked, its spilled blocks.
constexpr uint32_t check_marks(const Plan& plan) {
  uint32_t most = 0;
  for (const Program& program : plan.programs) {
    const uint32_t own = program.slots.count + program.spilled.count;
    most = own > most ? own : most;
  }
  return plan.state.count + plan.carried.count + most;
}

}  // namespace reprise
