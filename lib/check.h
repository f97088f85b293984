// check: proves that a plan is safe to run, at compile time in plan.h and again, with the same
// code, in bind(). It trusts neither the addresses, nor the hints, nor the lifetimes of a plan. It
// does not prove that the values are right: the replay (tests/judges/replay.h) detects a safe plan
// that computes something else than its network.
//
// The proof has parts: single values (check_values.h); the rows of each program in order
// (check_row.h), with their addresses (check_overlap.h) and transfers (check_transfers.h); the
// step as a whole (check_update.h). This file joins them and checks regions, programs and sizes
// that depend on all programs.
#pragma once

#include "lib/check_row.h"
#include "lib/check_values.h"

namespace reprise {

namespace proof {

// The proof of one plan.
class Checker : public RowProof {
 public:
  using RowProof::RowProof;

  // Returns the first fault of the plan, or a verdict with Fault::kNone.
  constexpr Verdict check() {
    if (!check_plan()) return verdict_;
    for (uint32_t p = 0; p < kProgramCount; ++p) {
      if (!check_program(p)) return verdict_;
    }
    program_ = kProgramCount;
    return check_step() ? Verdict{} : verdict_;
  }

 private:
  // Checks everything that concerns all programs together: State, Carried, and
  // the division of the arena.
  constexpr bool check_plan() {
    if (plan_.format != kPlanFormat || plan_.accumulate == 0) return fail(Fault::kFormat);
    if (plan_.ranks == 0 || plan_.ranks > kMaxRanks) return fail(Fault::kRanks);
    const Span<Row>& first = plan_.program(ProgramId::kMicroFirst).rows;
    const Span<Row>& add = plan_.program(ProgramId::kMicroAdd).rows;
    const Span<Row>& last = plan_.program(ProgramId::kMicroLast).rows;
    const bool trains = first.count != 0;
    if (!trains && (add.count != 0 || last.count != 0 || plan_.program(ProgramId::kUpdate).rows.count != 0))
      return fail(Fault::kFormat);
    if (last.count != 0 && (plan_.accumulate == 1 || plan_.ranks == 1)) return fail(Fault::kFormat);
    if (trains && runs_in_step(plan_, ProgramId::kMicroAdd) != 0 && add.count == 0) return fail(Fault::kFormat);
    for (const StateTensor& state : plan_.state) {
      if (state.kind > StateKind::kOffloaded || state.init > InitKind::kTable) return fail(Fault::kFormat);
    }
    if (plan_.spill_level > SpillLevel::kHost) return fail(Fault::kFormat);
    if (plan_.state_bytes % kAlignment != 0 || plan_.carried_bytes % kAlignment != 0 ||
        plan_.spill_bytes % kAlignment != 0 || plan_.streamed_bytes % kAlignment != 0) {
      return fail(Fault::kMisaligned);
    }
    if (plan_.shard_bytes != 0 && (plan_.ranks == 1 || plan_.streamed_bytes % plan_.ranks != 0 ||
                                   plan_.shard_bytes != plan_.streamed_bytes / plan_.ranks)) {
      return fail(Fault::kRanks);
    }
    if (plan_.state_bytes > plan_.arena_bytes || plan_.carried_bytes > plan_.arena_bytes - plan_.state_bytes) {
      return fail(Fault::kArenaBytes);
    }
    if (!attributes_make_sense(plan_.attributes)) return fail(Fault::kAttribute);
    if (!learning_rate_makes_sense(plan_.learning_rate)) return fail(Fault::kLearningRate);
    return check_scalars() && check_state() && check_carried();
  }

  // Checks that state[0] is the StepScalars, and that the norms and the trained parameters follow
  // it.
  constexpr bool check_scalars() {
    if (plan_.state.count == 0) return fail(Fault::kScalars);
    const StateTensor& scalars = plan_.state[kScalarsIndex];
    const bool whole = scalars.tensor.dtype == DType::kU8 && scalars.tensor.elements() >= sizeof(StepScalars);
    if (scalars.kind != StateKind::kScalars || !whole)
      return fail(Fault::kScalars, make_ref(Region::kState, kScalarsIndex));
    return update_.state_is_in_order() || fail(Fault::kUpdate);
  }

  // Checks every tensor of State: its address, its owner and, for a table, its numbers. Also checks
  // the sizes of the regions.
  constexpr bool check_state() {
    uint64_t end = 0, streamed_end = 0, kept_ends[kMaxRanks] = {};
    bool has_kept = false;
    for (uint32_t i = 0; i < plan_.state.count; ++i) {
      marks_[i] = {.written = true, .end_row = kNoRow};
      const Ref ref = make_ref(Region::kState, i);
      if (!has_its_numbers(plan_.state[i])) return fail(Fault::kShape, ref);
      if (plan_.state[i].owner != kEveryRank && !lies_in_arena(plan_.state[i].kind)) return fail(Fault::kRanks, ref);
      const Tensor& tensor = plan_.state[i].tensor;
      switch (plan_.state[i].kind) {
        case StateKind::kStreamed:
          if (!check_resident(tensor, plan_.streamed_bytes, streamed_end, ref)) return false;
          if (plan_.shard_bytes != 0 && !has_slices(tensor)) return fail(Fault::kMisaligned, ref);
          break;
        case StateKind::kOffloaded:
          if (plan_.spill_level != SpillLevel::kHost) return fail(Fault::kSpill, ref);
          if (!check_resident(tensor, plan_.spill_bytes, offloaded_end_, ref)) return false;
          break;
        default:
          if (!check_kept(plan_.state[i], has_kept, ref)) return false;
          if (!check_resident(tensor, plan_.state_bytes,
                              plan_.state[i].owner == kEveryRank ? end : kept_ends[plan_.state[i].owner], ref))
            return false;
      }
      if (!has_kept) {
        for (uint64_t& kept : kept_ends) kept = end;
      }
    }
    for (const uint64_t kept : kept_ends) end = kept > end ? kept : end;
    spill_bytes_ = offloaded_end_;
    const bool whole = plan_.shard_bytes <= plan_.state_bytes && end == plan_.state_bytes - plan_.shard_bytes &&
                       streamed_end == plan_.streamed_bytes;
    return whole || fail(Fault::kArenaBytes);
  }

  // Checks the owner of a tensor of State in the arena. A tensor of a single rank must contain
  // moments of an existing rank and must follow all tensors that every rank has. `has_kept` is true
  // once a tensor of a single rank has been found.
  constexpr bool check_kept(const StateTensor& state, bool& has_kept, Ref ref) {
    if (state.owner == kEveryRank) return !has_kept || fail(Fault::kRanks, ref);
    has_kept = true;
    return (state.kind == StateKind::kOptimizer && state.owner < plan_.ranks) || fail(Fault::kRanks, ref);
  }

  // True if every rank's slice of the tensor has an aligned offset and a size that is a multiple of
  // the alignment.
  constexpr bool has_slices(const Tensor& tensor) const {
    const uint64_t unit = kAlignment * plan_.ranks;
    return tensor.offset % unit == 0 && tensor.bytes % unit == 0;
  }

  // True if `kind` and `init` agree on whether the tensor is a table, and a table is f32 with all
  // its numbers in Plan::numbers.
  constexpr bool has_its_numbers(const StateTensor& state) const {
    if ((state.kind == StateKind::kTable) != (state.init == InitKind::kTable)) return false;
    if (state.kind != StateKind::kTable) return true;
    return state.tensor.dtype == DType::kF32 &&
           state.tensor.elements() <=
               uint64_t{plan_.numbers.count} -
                   (state.first_number < plan_.numbers.count ? state.first_number : plan_.numbers.count);
  }

  // Checks every tensor of Carried, and the size of the region.
  constexpr bool check_carried() {
    uint64_t end = 0;
    for (uint32_t i = 0; i < plan_.carried.count; ++i) {
      marks_[carried_base_ + i] = {.end_row = kNoRow};
      if (!check_resident(plan_.carried[i], plan_.carried_bytes, end, make_ref(Region::kCarried, i))) return false;
    }
    return end == plan_.carried_bytes || fail(Fault::kArenaBytes);
  }

  // Checks a tensor of State or Carried, which exists for the whole training. It must begin at or
  // after `end`, the end of the previous tensor in the same memory: the arena, the file of weights,
  // or host memory. Sets `end` to the end of this tensor.
  constexpr bool check_resident(const Tensor& tensor, uint64_t region_bytes, uint64_t& end, Ref ref) {
    const Fault fault = tensor_fault(tensor, region_bytes);
    if (fault != Fault::kNone) return fail(fault, ref);
    if (tensor.offset < end) return fail(Fault::kOverlap, ref);
    end = tensor.offset + tensor.bytes;
    return true;
  }

  // Checks one program: its region, its slots, its rows in order, and its end.
  constexpr bool check_program(uint32_t index) {
    start_program(index);
    if (here_->bytes % kAlignment != 0) return fail(Fault::kMisaligned);
    if (here_->bytes > plan_.arena_bytes - plan_.state_bytes - plan_.carried_bytes) return fail(Fault::kArenaBytes);
    start_rows();
    start_gradients();
    uint64_t slots_end = 0, spill_end = 0;
    if (!check_slots(here_->slots, here_->bytes, Region::kProgram, slots_end)) return false;
    if (!check_slots(here_->spilled, plan_.spill_bytes, Region::kSpill, spill_end)) return false;
    if (here_->bytes != slots_end) return fail(Fault::kArenaBytes);
    if (here_->bytes > region_bytes_) region_bytes_ = here_->bytes;
    if (spill_end > spill_bytes_) spill_bytes_ = spill_end;
    const bool has_activations =
        here_->input < slot_count_ && may_store(Storage::kActivation, slots_[here_->input].tensor.dtype);
    if (!check_host_slot(here_->input, has_activations ? Storage::kActivation : Storage::kI32) || !check_labels())
      return false;
    if (!check_host_slot(here_->document_start, Storage::kI32) || !check_host_slot(here_->pairs, Storage::kF64))
      return false;
    if (!check_host_slot(here_->token_types, Storage::kI32)) return false;
    if (!check_cache_slots()) return false;
    const Span<Row> rows = here_->rows;
    for (row_ = 0; row_ < rows.count; ++row_) {
      ++now_;
      if (!check_row(rows.data[row_])) return false;
    }
    row_ = kNoRow;
    return check_end();
  }

  // Marks Carried as unwritten if the program evaluates or generates, because it may not read
  // Carried. The programs of a step keep the marks of the programs before them. So a row may read a
  // gradient only after an earlier row of the step has written it.
  constexpr void start_gradients() {
    if (program_ != static_cast<uint32_t>(ProgramId::kEvaluate) &&
        program_ != static_cast<uint32_t>(ProgramId::kGenerate))
      return;
    for (uint32_t i = carried_base_; i < slot_base_; ++i) marks_[i].written = false;
  }

  // Checks slots, or spilled blocks, one by one. Raises `end` to the end of the highest slot or
  // block.
  constexpr bool check_slots(const Span<Slot>& slots, uint64_t region_bytes, Region region, uint64_t& end) {
    uint32_t previous = 0;
    const uint32_t base = region == Region::kSpill ? spill_base_ : slot_base_;
    const uint64_t begin = region == Region::kSpill ? offloaded_end_ : 0;
    const uint32_t rows = here_->rows.count;
    for (uint32_t i = 0; i < slots.count; ++i) {
      const Slot slot = slots.data[i];
      marks_[base + i] = {};
      if (slot.first_row < previous || slot.end_row <= slot.first_row || slot.end_row > rows) {
        return fail(Fault::kSlotOrder, make_ref(region, i));
      }
      previous = slot.first_row;
      const Fault fault = tensor_fault(slot.tensor, region_bytes);
      if (fault != Fault::kNone) return fail(fault, make_ref(region, i));
      if (slot.tensor.offset < begin) return fail(Fault::kOverlap, make_ref(region, i));
      if (slot.tensor.offset + slot.tensor.bytes > end) end = slot.tensor.offset + slot.tensor.bytes;
    }
    return true;
  }

  // Checks the slot of labels, which are classes or f32 numbers. Sets numbers_ to the slot if they
  // are f32, else to kNoRef.
  constexpr bool check_labels() {
    const uint32_t labels = here_->labels;
    const bool are_numbers = labels < slot_count_ && slots_[labels].tensor.dtype == DType::kF32;
    numbers_ = are_numbers ? labels : kNoRef;
    return check_host_slot(labels, are_numbers ? Storage::kF32 : Storage::kClasses);
  }

  // Checks a slot that the host fills before the first row: input, labels, document
  // starts, pairs or token types.
  constexpr bool check_host_slot(uint32_t index, Storage storage) {
    if (index == kNoSlot) return true;
    if (index >= slot_count_) return fail(Fault::kBadReference, index);
    const Slot& slot = slots_[index];
    if (slot.first_row != 0) return fail(Fault::kSlotOrder, index);
    if (!may_store(storage, slot.tensor.dtype)) return fail(Fault::kDType, index);
    CheckMark& note = marks_[slot_base_ + index];
    if (note.written) return fail(Fault::kAliasing, index);
    note.written = true;
    return true;
  }

  // Checks the caches and the output. Caches count as written: the trainer ensures that kernels
  // read only positions that this run or an earlier one has written.
  constexpr bool check_cache_slots() {
    const bool generates = program_ == static_cast<uint32_t>(ProgramId::kGenerate);
    const bool answers = generates || program_ == static_cast<uint32_t>(ProgramId::kEvaluate);
    if (here_->output != kNoSlot && (!answers || here_->output >= slot_count_))
      return fail(Fault::kDiesEarly, here_->output);
    for (uint32_t i = 0; i < slot_count_; ++i) {
      const Slot& slot = slots_[i];
      const bool is_cache = slot.use == SlotKind::kCache;
      if (!is_cache && i != here_->output) continue;
      if (!(is_cache ? generates : answers) || slot.end_row != here_->rows.count || (is_cache && slot.first_row != 0))
        return fail(Fault::kDiesEarly, i);
      if (is_cache) marks_[slot_base_ + i].written = true;
    }
    return true;
  }

  // True if `t` can be the output of an evaluation: two f64 for each pair.
  constexpr bool is_answers(const Tensor& t) const {
    return here_->pairs != kNoSlot && t.dtype == DType::kF64 && t.rank == 2 &&
           t.shape[0] == slots_[here_->pairs].tensor.shape[0] && t.shape[1] == 2;
  }

  // Checks what must hold after the last row: the output is written, every slot was used, no
  // transfer is in progress. After the program kUpdate, every trained parameter has been updated.
  constexpr bool check_end() {
    if (here_->output != kNoSlot && !marks_[slot_base_ + here_->output].written)
      return fail(Fault::kDiesEarly, here_->output);
    const bool evaluates = program_ == static_cast<uint32_t>(ProgramId::kEvaluate);
    if (here_->output != kNoSlot && evaluates && !is_answers(slots_[here_->output].tensor))
      return fail(Fault::kDiesEarly, here_->output);
    for (uint32_t i = 0; i < slot_count_ + here_->spilled.count; ++i) {
      const CheckMark& note = marks_[slot_base_ + i];
      const Ref ref = i < slot_count_ ? i : make_ref(Region::kSpill, i - slot_count_);
      if (note.filled_from != 0) return fail(Fault::kInFlight, ref);
      if (note.touched == 0) return fail(Fault::kUnused, ref);
    }
    if (program_ == static_cast<uint32_t>(ProgramId::kUpdate) &&
        plan_.program(ProgramId::kMicroFirst).rows.count != 0 && !update_.step_is_whole()) {
      return fail(Fault::kUpdate);
    }
    return !transfers_.any() || fail(Fault::kInFlight);
  }

  // Checks the sizes that depend on all programs: the arena, the second level and the workers'
  // stacks are exactly as large as needed.
  constexpr bool check_step() {
    if (plan_.arena_bytes != plan_.state_bytes + plan_.carried_bytes + region_bytes_ ||
        plan_.spill_bytes != spill_bytes_) {
      return fail(Fault::kArenaBytes);
    }
    return plan_.worker_stack_bytes == stack_bytes_ || fail(Fault::kStack);
  }

  uint64_t region_bytes_ = 0, spill_bytes_ = 0;  // Maximum over the programs so far.
  uint64_t offloaded_end_ = 0;                   // End of the offloaded tensors; spilled blocks are after it.
};

}  // namespace proof

// Proves the plan. Returns its first fault, or Fault::kNone if the plan is safe. The time is nearly
// linear in the number of rows and slots. `marks` is an array of check_marks(plan) marks, which the
// caller owns and need not initialise.
constexpr Verdict check(const Plan& plan, CheckMark* marks, const BackendRules& rules) {
  return proof::Checker(plan, marks, rules).check();
}

// Proves the plan with a workspace of its own, for use by the compiler. The fault is kFormat if
// `marks` is less than check_marks(plan). plan.h contains
//  constexpr Verdict kVerdict = prove<kMarks>(kPlan, kCpuRules);
//  static_assert(PlanIsSafe<kVerdict.fault, kVerdict.program, kVerdict.row, kVerdict.slot>::value);
template <uint32_t marks>
constexpr Verdict prove(const Plan& plan, const BackendRules& rules) {
  CheckMark workspace[marks] = {};
  return check_marks(plan) > marks ? Verdict{Fault::kFormat} : check(plan, workspace, rules);
}

// Stops the build of a faulty plan, with the fault in the compiler's message:
// PlanIsSafe<Fault::kOverlap, program, row, slot>.
template <Fault fault, uint32_t program, uint32_t row, uint32_t slot>
struct PlanIsSafe {
  static_assert(fault == Fault::kNone, "this plan is not safe: PlanIsSafe<fault, program, row, slot>, see lib/check.h");
  static constexpr bool value = fault == Fault::kNone;
};

}  // namespace reprise
