// The part of the proof that concerns addresses: no two slots that live at the same time share bytes, nor do two spilled blocks.
#pragma once

#include "lib/check_mark.h"

namespace reprise::proof {

constexpr bool disjoint(const Tensor& a, const Tensor& b) { return a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset; }

// The slots of a program in the order of their addresses, as a list: a slot is put in when it is born, behind the neighbour that
// `below` names, and the dead are unlinked when a newcomer meets them.
// Invariant: the list holds every live slot, and those live in it are disjoint and in the order of their addresses.
class LiveSlots {
 public:
  constexpr void start(const Span<Slot>& slots, CheckMark* notes) {
    slots_ = slots.data;
    count_ = slots.count;
    notes_ = notes;
    lowest_ = kNoSlot;
    born_ = 0;
    find_next_birth();
  }

  constexpr bool has_births(uint32_t row) const { return next_birth_ == row; }
  // Of a fault: the slot that was being born.
  constexpr uint32_t newcomer() const { return born_; }

  // Puts in every slot that is born in the row. `moved`: the source of the row's move, which dies with the row and which `target`, born
  // there, may overlap; kNoSlot where nothing moves.
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
  // Either the two overlap, or the hint named a neighbour that is none.
  constexpr Fault neighbour_fault(uint32_t index, uint32_t other) const {
    return disjoint(slots_[other].tensor, slots_[index].tensor) ? Fault::kHint : Fault::kOverlap;
  }

  uint32_t next_birth_ = kNoRow;  // the row of it
  uint32_t born_ = 0;             // slots before it have been put in
  const Slot* slots_ = nullptr;
  uint32_t count_ = 0;
  CheckMark* notes_ = nullptr;
  uint32_t lowest_ = kNoSlot;
};

// Disk blocks are a stack: each begins at or past the end of every live one. Invariant: the live ones are in the list from `top_` down,
// each at or past the end of the next.
class SpillStack {
 public:
  constexpr void start(const Span<Slot>& blocks, CheckMark* notes) {
    blocks_ = blocks;
    notes_ = notes;
    top_ = kNoSlot;
    born_ = 0;
  }

  constexpr uint32_t newcomer() const { return born_; }

  constexpr Fault insert_births(uint32_t row) {
    for (; born_ < blocks_.count && blocks_[born_].first_row == row; ++born_) {
      while (top_ != kNoSlot && blocks_[top_].end_row <= row) top_ = notes_[top_].above;
      if (top_ != kNoSlot && blocks_[born_].tensor.offset < blocks_[top_].tensor.offset + blocks_[top_].tensor.bytes) return Fault::kOverlap;
      notes_[born_].end_row = blocks_[born_].end_row;
      notes_[born_].above = top_;
      top_ = born_;
    }
    return Fault::kNone;
  }

 private:
  Span<Slot> blocks_;
  CheckMark* notes_ = nullptr;
  uint32_t top_ = kNoSlot;  // the latest block not yet seen to be dead
  uint32_t born_ = 0;       // blocks before it have been born
};

}  // namespace reprise::proof
