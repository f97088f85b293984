// Where the proof stands in its walk over a plan: the program, the row, and how a reference becomes a tensor with its mark.
// The proof of a row (check_row.h) and of the whole (check.h) stand on it.
#pragma once

#include "lib/check_mark.h"
#include "lib/fault.h"

namespace reprise {

// Where the first fault lies. `slot` is a Ref: a program's slot shows as its plain index, Carried as 2^30 + i, State as
// 2^31 + i, a spilled block as 2^31 + 2^30 + i, none as kNoRef. A fault outside the programs has program == kProgramCount; outside the rows, row == kNoRow.
struct Verdict {
  Fault fault = Fault::kNone;
  uint32_t program = kProgramCount;
  uint32_t row = kNoRow;
  uint32_t slot = kNoRef;

  constexpr bool ok() const { return fault == Fault::kNone; }
};

namespace proof {

constexpr uint32_t kNoMark = ~0u;

class Walk {
 public:
  constexpr Walk(const Plan& plan, CheckMark* marks)
      : slot_base_(plan.state.count + plan.carried.count), marks_(marks), plan_(plan), carried_base_(plan.state.count) {}

 protected:
  constexpr bool fail(Fault fault, Ref slot = kNoRef) {
    verdict_ = {fault, program_, row_, slot};
    return false;
  }

  constexpr void start_program(uint32_t index) {
    program_ = index;
    row_ = kNoRow;
    here_ = &plan_.programs[index];
    slots_ = here_->slots.data;
    slot_count_ = here_->slots.count;
    spill_count_ = here_->spilled.count;
    spill_base_ = slot_base_ + slot_count_;
  }

  // The mark of the tensor that a reference names, by its index, and the tensor; kNoMark where there is none.
  constexpr uint32_t find(Ref ref, const Tensor*& tensor) const {
    if (ref < slot_count_) {  // region 0: the reference is the index
      tensor = &slots_[ref].tensor;
      return slot_base_ + ref;
    }
    const uint32_t index = ref_index(ref);
    const Region region = ref_region(ref);
    if (region == Region::kState && index < plan_.state.count) {
      tensor = &plan_.state.data[index].tensor;
      return index;
    }
    if (region == Region::kCarried && index < plan_.carried.count) {
      tensor = &plan_.carried.data[index];
      return carried_base_ + index;
    }
    if (region == Region::kSpill && index < here_->spilled.count) {
      tensor = &here_->spilled.data[index].tensor;
      return spill_base_ + index;
    }
    return kNoMark;
  }
  // Of a reference that names a tensor.
  constexpr CheckMark& mark(Ref ref) {
    const Tensor* tensor = nullptr;
    return marks_[find(ref, tensor)];
  }

  // Hot members first, here and in what stands on it: g++ finds a member of a constant by walking over those before it.
  uint32_t row_ = kNoRow;
  uint32_t now_ = 0;             // rows walked, of all programs
  const Slot* slots_ = nullptr;  // of the program being walked
  uint32_t slot_count_ = 0, spill_count_ = 0;
  Ref numbers_ = kNoRef;  // the slot of labels, where these are f32 as other slots are
  uint32_t slot_base_;  // the first mark of these slots
  CheckMark* marks_;
  uint32_t spill_base_ = 0;         // the first mark of the program's spilled blocks
  const Program* here_ = nullptr;  // the program being walked
  uint32_t program_ = kProgramCount;
  const Plan& plan_;
  uint32_t carried_base_;  // the first mark of Carried
  Verdict verdict_;
};

}  // namespace proof
}  // namespace reprise
