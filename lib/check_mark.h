// The checker's notes on one tensor of a plan.
#pragma once

#include "lib/check_update.h"

namespace reprise {

// The value of a row index that means "no row".
constexpr uint32_t kNoRow = ~0u;

// The notes on one tensor. The caller of check() passes check_marks(plan) marks, which need not be
// initialised.
struct CheckMark {
  // For a slot: the next higher slot in the list of slots by address. For a spilled block: the
  // block below it in the stack. kNoSlot: none.
  uint32_t above = kNoSlot;
  // Number of the latest row that names the tensor. Rows are counted from 1 through all programs;
  // 0: no row has named it.
  uint32_t touched = 0;
  uint32_t filled_from = 0;       // While a transfer fills the tensor: 1 + index of the source's mark; else 0.
  uint32_t drained_by = 0;        // Number of transfers in progress that read the tensor.
  bool written = false;           // True if a row, the host or an earlier step has written it.
  bool linked = false;            // True if the slot is in the list by address.
  Op filled_by = {};              // The op whose transfer fills the tensor, if filled_from is not 0.
  proof::UpdateMark update = {};  // Notes of the part of the proof that concerns updates (check_update.h).
  uint32_t end_row = 0;  // First row after the tensor's lifetime; 0: not inserted yet; kNoRow: State or Carried.
};

// Returns the number of marks that check() needs. Marks are in this order: State, Carried, the
// slots of the program that is being checked, the spilled blocks of that program.
constexpr uint32_t check_marks(const Plan& plan) {
  uint32_t maximum = 0;
  for (const Program& program : plan.programs) {
    const uint32_t own = program.slots.count + program.spilled.count;
    maximum = own > maximum ? own : maximum;
  }
  return plan.state.count + plan.carried.count + maximum;
}

}  // namespace reprise
