// The current position of the proof in a plan: the program, the row, and the mapping from a
// reference to a tensor and its mark. The proofs of a row (check_row.h) and of the plan (check.h)
// derive from it.
#pragma once

#include "lib/check_mark.h"
#include "lib/fault.h"

namespace reprise {

// The first fault of a plan, and where it is.
struct Verdict {
  Fault fault = Fault::kNone;        // kNone: the plan is safe.
  uint32_t program = kProgramCount;  // Index of the program; kProgramCount: outside the programs.
  uint32_t row = kNoRow;             // Index of the row; kNoRow: outside the rows.
  // A Ref; kNoRef: none. Slot i of the program is i; Carried i is 2^30 + i; State i is 2^31 + i;
  // spilled block i is 2^31 + 2^30 + i.
  uint32_t slot = kNoRef;

  // True if the plan is safe.
  constexpr bool ok() const { return fault == Fault::kNone; }
};

namespace proof {

// The mark index of "no tensor".
constexpr uint32_t kNoMark = ~0u;

// The current position of a proof, and its marks.
class Walk {
 public:
  // Starts before the first program. `plan` and `marks` (check_marks(plan) marks) are borrowed for
  // the object's lifetime.
  constexpr Walk(const Plan& plan, CheckMark* marks)
      : slot_base_(plan.state.count + plan.carried.count),
        marks_(marks),
        plan_(plan),
        carried_base_(plan.state.count) {}

 protected:
  // Notes a fault at the current position; returns false.
  constexpr bool fail(Fault fault, Ref slot = kNoRef) {
    verdict_ = {fault, program_, row_, slot};
    return false;
  }

  // Moves to program `index`, before its first row.
  constexpr void start_program(uint32_t index) {
    program_ = index;
    row_ = kNoRow;
    here_ = &plan_.programs[index];
    slots_ = here_->slots.data;
    slot_count_ = here_->slots.count;
    spill_count_ = here_->spilled.count;
    spill_base_ = slot_base_ + slot_count_;
  }

  // Returns the index of the mark of the tensor that `ref` names, and sets `tensor`; returns
  // kNoMark if no such tensor exists.
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
  // Returns the mark of the tensor that `ref` names, which must exist.
  constexpr CheckMark& mark(Ref ref) {
    const Tensor* tensor = nullptr;
    return marks_[find(ref, tensor)];
  }

  // Members that are used often are declared first, here and in derived classes. In constant
  // evaluation g++ finds a member by a linear search in the order of declaration, so this order
  // shortens compile time.
  uint32_t row_ = kNoRow;
  uint32_t now_ = 0;             // number of rows visited in all programs, the current one included
  const Slot* slots_ = nullptr;  // Slots of the current program.
  uint32_t slot_count_ = 0, spill_count_ = 0;
  Ref numbers_ = kNoRef;  // slot of the labels if the labels are f32; else kNoRef
  uint32_t slot_base_;    // index of the first slot's mark
  CheckMark* marks_;
  uint32_t spill_base_ = 0;        // index of the first spilled block's mark
  const Program* here_ = nullptr;  // the current program
  uint32_t program_ = kProgramCount;
  const Plan& plan_;
  uint32_t carried_base_;  // index of the mark of Carried's first tensor
  Verdict verdict_;
};

}  // namespace proof
}  // namespace reprise
