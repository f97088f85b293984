// The part of the proof that concerns addresses: no two slots that are live at the same time share
// bytes, nor do two spilled blocks.
#pragma once

#include "lib/check_mark.h"

namespace reprise::proof {

// True if the two tensors, which are in one region, share no byte.
constexpr bool disjoint(const Tensor& a, const Tensor& b) {
  return a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset;
}

// The live slots of a program, as a list in address order. A slot is inserted in the first row of
// its lifetime (its birth), after the neighbour that its hint `below` names. A dead slot is removed
// when an insertion reaches it.
// Invariant: the list contains every live slot, and its live slots are disjoint and in address
// order.
class LiveSlots {
 public:
  // Starts a program without live slots. `slots` and `notes` (one note per slot) are borrowed until
  // the program ends.
  constexpr void start(const Span<Slot>& slots, CheckMark* notes) {
    slots_ = slots.data;
    count_ = slots.count;
    notes_ = notes;
    lowest_ = kNoSlot;
    born_ = 0;
    find_next_birth();
  }

  // True if the lifetime of a slot that is not inserted yet begins in `row`.
  constexpr bool has_births(uint32_t row) const { return next_birth_ == row; }
  // Returns the slot at whose insertion the last fault occurred.
  constexpr uint32_t newcomer() const { return born_; }

  // Inserts every slot whose lifetime begins in `row`; returns the first fault. If the row moves a
  // value, `moved` is the source, whose lifetime ends with the row, and `target` is the
  // destination. Only `target` may overlap `moved`. If the row moves nothing, `moved` is kNoSlot.
  constexpr Fault insert_births(uint32_t row, uint32_t moved, uint32_t target) {
    while (next_birth_ == row) {
      const Fault fault = insert(born_, row, moved, target);
      if (fault != Fault::kNone) return fault;
      ++born_;
      find_next_birth();
    }
    return Fault::kNone;
  }

 private:
  constexpr void find_next_birth() { next_birth_ = born_ == count_ ? kNoRow : slots_[born_].first_row; }

  // Inserts slot `index` after the neighbour that its hint names; compares it with both neighbours.
  constexpr Fault insert(uint32_t index, uint32_t row, uint32_t moved, uint32_t target) {
    const Slot slot = slots_[index];
    const uint64_t begin = slot.tensor.offset, end = begin + slot.tensor.bytes;
    const uint32_t below = slot.below;
    uint32_t next = lowest_;
    if (below != kNoSlot) {
      if (below >= index || !notes_[below].linked || notes_[below].end_row <= row) return Fault::kHint;
      const Tensor& lower = slots_[below].tensor;
      if (lower.offset + lower.bytes > begin) return neighbour_fault(index, below);
      next = notes_[below].above;
    }
    while (next != kNoSlot && (notes_[next].end_row <= row || next == moved)) {
      notes_[next].linked = false;
      next = notes_[next].above;
    }
    if (next != kNoSlot && slots_[next].tensor.offset < end) return neighbour_fault(index, next);
    if (moved != kNoSlot && index != target && !disjoint(slots_[moved].tensor, slot.tensor)) return Fault::kOverlap;
    CheckMark& note = notes_[index];
    note.end_row = slot.end_row;
    note.linked = true;
    note.above = next;
    (below == kNoSlot ? lowest_ : notes_[below].above) = index;
    return Fault::kNone;
  }
  // Returns kOverlap if the two slots overlap. Otherwise returns kHint: the hint has named a slot
  // that is not the neighbour.
  constexpr Fault neighbour_fault(uint32_t index, uint32_t other) const {
    return disjoint(slots_[other].tensor, slots_[index].tensor) ? Fault::kHint : Fault::kOverlap;
  }

  uint32_t next_birth_ = kNoRow;  // First row of the next slot to insert; kNoRow: none.
  uint32_t born_ = 0;             // Number of slots that have been inserted; the next one has this index.
  const Slot* slots_ = nullptr;
  uint32_t count_ = 0;
  CheckMark* notes_ = nullptr;
  uint32_t lowest_ = kNoSlot;
};

// The spilled blocks of a program. They form a stack: each block begins at or after the end of
// every block that is live when it is inserted.
// Invariant: the live blocks are in the list from `top_` downwards. Each block of the list begins
// at or after the end of the next block in the list.
class SpillStack {
 public:
  // Starts a program without live blocks. `blocks` and `notes` (one note per block) are borrowed
  // until the program ends.
  constexpr void start(const Span<Slot>& blocks, CheckMark* notes) {
    blocks_ = blocks;
    notes_ = notes;
    top_ = kNoSlot;
    born_ = 0;
  }

  // Returns the block at whose insertion the last fault occurred.
  constexpr uint32_t newcomer() const { return born_; }

  // Inserts every block whose lifetime begins in `row`; returns the first fault.
  constexpr Fault insert_births(uint32_t row) {
    for (; born_ < blocks_.count && blocks_[born_].first_row == row; ++born_) {
      while (top_ != kNoSlot && blocks_[top_].end_row <= row) top_ = notes_[top_].above;
      if (top_ != kNoSlot && blocks_[born_].tensor.offset < blocks_[top_].tensor.offset + blocks_[top_].tensor.bytes)
        return Fault::kOverlap;
      notes_[born_].end_row = blocks_[born_].end_row;
      notes_[born_].above = top_;
      top_ = born_;
    }
    return Fault::kNone;
  }

 private:
  Span<Slot> blocks_;
  CheckMark* notes_ = nullptr;
  uint32_t top_ = kNoSlot;  // The most recently inserted block that may be live; kNoSlot: none.
  uint32_t born_ = 0;       // Number of blocks that have been inserted.
};

}  // namespace reprise::proof
