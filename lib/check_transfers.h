// The part of the proof that concerns transfers. Between a transfer's start and its wait, no row
// may touch the destination or write the source. Every start has one wait, of the same op.
#pragma once

#include "lib/check_mark.h"
#include "lib/kernel_info.h"

namespace reprise::proof {

// The transfers in progress at a row.
class OpenTransfers {
 public:
  // Starts a program without transfers.
  constexpr void start_program() { count_ = 0; }
  // True if a transfer is in progress.
  constexpr bool any() const { return count_ != 0; }

  // True if a transfer in progress forbids that a row uses the tensor as `role`.
  static constexpr bool in_flight(const CheckMark& note, Role role) {
    return note.filled_from != 0 || (note.drained_by != 0 && role != Role::kInput);
  }

  // Notes the start of a transfer of `op`. Returns false if a transfer in progress forbids it.
  // `source_id` identifies the source's mark; it is not 0.
  constexpr bool start(Op op, CheckMark& destination, CheckMark& source, uint32_t source_id) {
    if (in_flight(destination, Role::kOutput) || in_flight(source, Role::kInput)) return false;
    destination.filled_from = source_id;
    destination.filled_by = op;
    ++source.drained_by;
    ++count_;
    return true;
  }
  // Notes the wait for a transfer of `op`; returns false if no such transfer is in progress.
  constexpr bool wait(Op op, CheckMark& destination, CheckMark& source, uint32_t source_id) {
    if (destination.filled_from != source_id || destination.filled_by != op) return false;
    destination.filled_from = 0;
    --source.drained_by;
    --count_;
    return true;
  }

 private:
  uint32_t count_ = 0;
};

}  // namespace reprise::proof
