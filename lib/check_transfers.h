// The part of the proof that concerns transfers: between a start and its wait nobody touches the destination nor writes the source, and
// every start is waited for once.
#pragma once

#include "lib/check_mark.h"
#include "lib/kernel_info.h"

namespace reprise::proof {

class OpenTransfers {
 public:
  constexpr void start_program() { count_ = 0; }
  constexpr bool any() const { return count_ != 0; }

  static constexpr bool in_flight(const CheckMark& note, Role role) {
    return note.filled_from != 0 || (note.drained_by != 0 && role != Role::kInput);
  }

  // `source_id` names the source's mark, and is not 0. Each answers whether it may.
  constexpr bool start(CheckMark& destination, CheckMark& source, uint32_t source_id) {
    if (in_flight(destination, Role::kOutput) || in_flight(source, Role::kInput)) return false;
    destination.filled_from = source_id;
    ++source.drained_by;
    ++count_;
    return true;
  }
  constexpr bool wait(CheckMark& destination, CheckMark& source, uint32_t source_id) {
    if (destination.filled_from != source_id) return false;
    destination.filled_from = 0;
    --source.drained_by;
    --count_;
    return true;
  }

 private:
  uint32_t count_ = 0;
};

}  // namespace reprise::proof
