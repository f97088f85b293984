// check: proves that a plan is safe to run, at compile time in plan.h and again, on the same code, in bind.
// A plan is never trusted: not the planner's addresses, not its hints, not its lifetimes. Wrong values are the replay's business
// (tests/judges/replay.h): a plan that is safe may still compute something else than its network.
//
// The proof has parts: values one by one (check_values.h), the walk over every program's rows (here) with its addresses
// (check_overlap.h) and transfers (check_transfers.h), and the step as a whole (check_update.h). Shapes are judged by each kernel's
// family (lib/ops), scratch and stack by the backend's rules.
#pragma once

#include "lib/backend_rules.h"
#include "lib/check_overlap.h"
#include "lib/check_transfers.h"
#include "lib/check_values.h"

namespace reprise {

// Where the first fault lies. `slot` is a Ref: a program's slot shows as its plain index, Carried as 2^30 + i, State as
// 2^31 + i, a disk block as 2^31 + 2^30 + i, none as kNoRef. A fault outside the programs has program == kProgramCount; outside the rows, row == kNoRow.
struct Verdict {
  Fault fault = Fault::kNone;
  uint32_t program = kProgramCount;
  uint32_t row = kNoRow;
  uint32_t slot = kNoRef;

  constexpr bool ok() const { return fault == Fault::kNone; }
};

namespace proof {

constexpr uint32_t kNoMark = ~0u;

// ---- the walk ----

class Checker {
 public:
  constexpr Checker(const Plan& plan, CheckMark* marks, const BackendRules& rules)
      : slot_base_(plan.state.count + plan.carried.count),
        marks_(marks),
        plan_(plan),
        rules_(rules),
        update_(plan),
        carried_base_(plan.state.count) {}

  constexpr Verdict check() {
    for (AttributeKind kind = 0; kind < AttributeTypes::kCount; ++kind) pool_counts_[kind] = attribute_count(plan_.attributes, kind);
    if (!check_plan()) return verdict_;
    for (uint32_t p = 0; p < kProgramCount; ++p) {
      if (!check_program(p)) return verdict_;
    }
    program_ = kProgramCount;
    return check_step() ? Verdict{} : verdict_;
  }

 private:
  constexpr bool fail(Fault fault, Ref slot = kNoRef) {
    verdict_ = {fault, program_, row_, slot};
    return false;
  }

  // What holds for all programs together: State, Carried, and the arena's division.
  constexpr bool check_plan() {
    if (plan_.format != kPlanFormat || plan_.accumulate == 0) return fail(Fault::kFormat);
    const Span<Row>& first = plan_.program(ProgramId::kMicroFirst).rows;
    const Span<Row>& add = plan_.program(ProgramId::kMicroAdd).rows;
    const bool trains = first.count != 0;
    if (!trains && (add.count != 0 || plan_.program(ProgramId::kUpdate).rows.count != 0)) return fail(Fault::kFormat);
    if (trains && plan_.accumulate > 1 && add.count == 0) return fail(Fault::kFormat);
    if (plan_.state_bytes % kAlignment != 0 || plan_.carried_bytes % kAlignment != 0 || plan_.disk_bytes % kAlignment != 0) {
      return fail(Fault::kMisaligned);
    }
    if (plan_.state_bytes > plan_.arena_bytes || plan_.carried_bytes > plan_.arena_bytes - plan_.state_bytes) {
      return fail(Fault::kArenaBytes);
    }
    if (!attributes_make_sense(plan_.attributes)) return fail(Fault::kAttribute);
    if (!learning_rate_makes_sense(plan_.learning_rate)) return fail(Fault::kLearningRate);
    return check_scalars() && check_state() && check_carried();
  }

  constexpr bool check_scalars() {
    if (plan_.state.count == 0) return fail(Fault::kScalars);
    const StateTensor& scalars = plan_.state[kScalarsIndex];
    const bool whole = scalars.tensor.dtype == DType::kU8 && scalars.tensor.elements() >= sizeof(StepScalars);
    if (scalars.kind != StateKind::kScalars || !whole) return fail(Fault::kScalars, make_ref(Region::kState, kScalarsIndex));
    return update_.state_is_in_order() || fail(Fault::kUpdate);
  }

  constexpr bool check_state() {
    uint64_t end = 0;
    for (uint32_t i = 0; i < plan_.state.count; ++i) {
      marks_[i] = {.end_row = kNoRow, .written = true};
      if (!check_resident(plan_.state[i].tensor, plan_.state_bytes, end, make_ref(Region::kState, i))) return false;
    }
    return end == plan_.state_bytes || fail(Fault::kArenaBytes);
  }

  constexpr bool check_carried() {
    uint64_t end = 0;
    for (uint32_t i = 0; i < plan_.carried.count; ++i) {
      marks_[carried_base_ + i] = {.end_row = kNoRow};
      if (!check_resident(plan_.carried[i], plan_.carried_bytes, end, make_ref(Region::kCarried, i))) return false;
    }
    return end == plan_.carried_bytes || fail(Fault::kArenaBytes);
  }

  // Tensors of State and Carried live for ever and stand in the order of their addresses.
  constexpr bool check_resident(const Tensor& tensor, uint64_t region_bytes, uint64_t& end, Ref ref) {
    const Fault fault = tensor_fault(tensor, region_bytes);
    if (fault != Fault::kNone) return fail(fault, ref);
    if (tensor.offset < end) return fail(Fault::kOverlap, ref);
    end = tensor.offset + tensor.bytes;
    return true;
  }

  constexpr bool check_program(uint32_t index) {
    program_ = index;
    row_ = kNoRow;
    here_ = &plan_.programs[index];
    slots_ = here_->slots.data;
    slot_count_ = here_->slots.count;
    disk_count_ = here_->disk.count;
    disk_base_ = slot_base_ + slot_count_;
    if (here_->bytes % kAlignment != 0) return fail(Fault::kMisaligned);
    if (here_->bytes > plan_.arena_bytes - plan_.state_bytes - plan_.carried_bytes) return fail(Fault::kArenaBytes);
    live_.start(here_->slots, marks_ + slot_base_);
    disk_.start(here_->disk, marks_ + disk_base_);
    transfers_.start_program();
    start_gradients();
    uint64_t slots_end = 0, disk_end = 0;
    if (!check_slots(here_->slots, here_->bytes, Region::kProgram, slots_end)) return false;
    if (!check_slots(here_->disk, plan_.disk_bytes, Region::kDisk, disk_end)) return false;
    if (here_->bytes != slots_end) return fail(Fault::kArenaBytes);
    if (here_->bytes > region_bytes_) region_bytes_ = here_->bytes;
    if (disk_end > disk_bytes_) disk_bytes_ = disk_end;
    if (!check_host_slot(here_->input, true) || !check_host_slot(here_->labels, false)) return false;
    const Span<Row> rows = here_->rows;
    for (row_ = 0; row_ < rows.count; ++row_) {
      ++now_;
      if (!check_row(rows.data[row_])) return false;
    }
    row_ = kNoRow;
    return check_end();
  }

  // Gradients of an earlier step are stale: only what micro_first writes may be read by micro_add and update. Evaluation updates nothing,
  // so what the marks say of the step's updates is begun once, in check_state() and check_carried().
  constexpr void start_gradients() {
    if (program_ != static_cast<uint32_t>(ProgramId::kEvaluate)) return;
    for (uint32_t i = carried_base_; i < slot_base_; ++i) marks_[i].written = false;
  }

  constexpr bool check_slots(const Span<Slot>& slots, uint64_t region_bytes, Region region, uint64_t& end) {
    uint32_t previous = 0;
    const uint32_t base = region == Region::kDisk ? disk_base_ : slot_base_;
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
      if (slot.tensor.offset + slot.tensor.bytes > end) end = slot.tensor.offset + slot.tensor.bytes;
    }
    return true;
  }

  // The host writes inputs and labels before the first row, so they must be there by then.
  constexpr bool check_host_slot(uint32_t index, bool may_be_activation) {
    if (index == kNoSlot) return true;
    if (index >= slot_count_) return fail(Fault::kBadReference, index);
    const Slot& slot = slots_[index];
    if (slot.first_row != 0) return fail(Fault::kSlotOrder, index);
    if (slot.tensor.dtype != DType::kI32 && !(may_be_activation && may_store(Storage::kActivation, slot.tensor.dtype)))
      return fail(Fault::kDType, index);
    CheckMark& note = marks_[slot_base_ + index];
    if (note.written) return fail(Fault::kAliasing, index);
    note.written = true;
    return true;
  }

  // The row is a copy, as are other small structs here: g++ reads a member of a local the faster.
  constexpr bool check_row(const Row row) {
    if (!find_kernel(row)) return false;
    if (live_.has_births(row_) && !check_births()) return false;
    if (disk_count_ != 0 && !check_disk_births()) return false;
    if (!check_arguments(row)) return false;
    const ShapedCall call = {row.op, row.pass, tensors_, present_, &plan_.attributes, row.attribute};
    if (const Fault fault = info_->shape_fault(call); fault != Fault::kNone) return fail(fault);
    if (group_ != nullptr && !check_group()) return false;
    if (!check_resources(call)) return false;
    if (info_->attribute == kAttributeKind<ClipAttribute> && !check_finish(row)) return false;
    return !info_->asynchronous || check_transfer(row);
  }

  // The kernel, its attribute and where its arguments lie; nothing is read through the row before this has passed.
  constexpr bool find_kernel(const Row& row) {
    const uint32_t kernel = kernel_index(row.op, row.pass);
    if (kernel == kKernelCount) return fail(Fault::kUnknownKernel);
    own_rules_ = &rules_.kernels[kernel];
    info_ = &kOps[kernel];
    const uint32_t arity = contract::kIndex.arity[kernel];
    arity_ = arity;
    const Span<Ref> pool = here_->arguments;
    if (row.first_argument > pool.count || pool.count - row.first_argument < arity) return fail(Fault::kArgumentPool);
    const AttributeKind attribute = info_->attribute;
    if (attribute != kNoAttribute && row.attribute >= pool_counts_[attribute]) return fail(Fault::kAttribute);
    const bool asynchronous = info_->asynchronous;
    if (row.queue != 0 && !asynchronous) return fail(Fault::kInFlight);
    beside_transfers_ = transfers_.any() && !asynchronous;
    refs_ = pool.data + row.first_argument;
    group_ = nullptr;
    if (attribute == kAttributeKind<GroupAttribute>) group_ = &plan_.attributes.of<GroupAttribute>().data[row.attribute];
    if (attribute == kAttributeKind<UpdateAttribute>) group_ = &plan_.attributes.of<UpdateAttribute>().data[row.attribute].group;
    in_place_ = kNoRef;
    const int32_t output = info_->in_place_output;
    if (output >= 0 && refs_[output] == refs_[info_->in_place_input]) in_place_ = refs_[output];
    return true;
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
    if (region == Region::kDisk && index < here_->disk.count) {
      tensor = &here_->disk.data[index].tensor;
      return disk_base_ + index;
    }
    return kNoMark;
  }
  // Of a reference that names a tensor.
  constexpr CheckMark& mark(Ref ref) {
    const Tensor* tensor = nullptr;
    return marks_[find(ref, tensor)];
  }

  // ---- births ----

  constexpr bool check_births() {
    const uint32_t moved = info_->moves ? moved_slot() : kNoSlot;
    const Fault fault = live_.insert_births(row_, moved, refs_[0]);
    return fault == Fault::kNone || fail(fault, live_.newcomer());
  }

  // The source of a move row that dies with it: its destination, born there, may overlap it (memmove semantics).
  constexpr uint32_t moved_slot() const {
    if (refs_[0] >= slot_count_ || refs_[1] >= slot_count_) return kNoSlot;
    return slots_[refs_[0]].first_row == row_ && slots_[refs_[1]].end_row == row_ + 1 ? refs_[1] : kNoSlot;
  }

  constexpr bool check_disk_births() {
    const Fault fault = disk_.insert_births(row_);
    return fault == Fault::kNone || fail(fault, make_ref(Region::kDisk, disk_.newcomer()));
  }

  // ---- arguments: presence, type, life, and who may read and write what ----

  constexpr bool check_arguments(const Row& row) {
    const uint32_t arity = arity_, accumulate = row.accumulate;
    if (accumulate >> arity != 0) return fail(Fault::kAccumulate);
    bool writes = false, has_stored = false;
    DType stored = DType::kF32;  // of the row's first activation, and so of all
    uint32_t present = 0, groups = 0;
    gradients_ = kNoRef;
    for (uint32_t i = 0; i < arity; ++i) {
      const ArgumentInfo argument = info_->arguments[i];
      const Ref ref = refs_[i];
      const bool adds = accumulate != 0 && (accumulate >> i & 1) != 0;
      if (adds && (!argument.may_accumulate || ref == kNoRef)) return fail(Fault::kAccumulate, ref);
      if (ref == kNoRef) {
        if (!argument.optional) return fail(Fault::kMissingArgument);
        continue;
      }
      const Tensor* tensor = nullptr;
      if (!touch(i, ref, argument.role, adds, tensor)) return false;
      present |= 1u << i;
      tensors_[i] = tensor;
      const DType dtype = tensor->dtype;
      if (argument.storage == Storage::kF32) {
        if (dtype != DType::kF32) return fail(Fault::kDType, ref);
      } else if (!check_storage(argument, ref, dtype)) {
        return false;
      } else if (argument.storage == Storage::kActivation) {
        if (!has_stored) stored = dtype;
        has_stored = true;
        if (dtype != stored) return fail(Fault::kDType, ref);
      }
      if (argument.group) {
        if (!touch_group(i, ref, argument.role)) return false;
        groups |= 1u << i;
        if (argument.role == Role::kInput) gradients_ = ref;
      }
      if (argument.role == Role::kOutput || argument.role == Role::kUpdated) writes = true;
    }
    present_ = present;
    groups_ = groups;
    return writes || fail(Fault::kMissingArgument);
  }

  // Of arguments that are not plain f32: scratch is the program's own and of any type; scalars are state[0]; labels are read from the
  // labels' slot, which nothing else touches. That slot is i32 (check_host_slot), so nothing stored as floats can be it.
  constexpr bool check_storage(const ArgumentInfo& argument, Ref ref, DType dtype) {
    const Storage storage = argument.storage;
    if (argument.role != Role::kScratch && !may_store(storage, dtype)) return fail(Fault::kDType, ref);
    if (storage == Storage::kActivation || storage == Storage::kWeight) return true;
    if (storage == Storage::kScratch && ref_region(ref) != Region::kProgram) return fail(Fault::kReadOnly, ref);
    if (storage == Storage::kScalars && ref != make_ref(Region::kState, kScalarsIndex)) return fail(Fault::kScalars, ref);
    return argument.labels == (ref == here_->labels) || fail(Fault::kHostSlot, ref);
  }

  constexpr bool touch_group(uint32_t argument, Ref first, Role role) {
    const Tensor* tensor = nullptr;
    for (uint32_t t = 1; t < group_->tensors; ++t) {
      if (!touch(argument, first + t, role, false, tensor)) return false;
    }
    return true;
  }

  // Existence, life, aliasing, transfers under way, and reading what was written: of one tensor of an argument.
  constexpr bool touch(uint32_t argument, Ref ref, Role role, bool adds, const Tensor*& tensor) {
    uint32_t at = slot_base_ + ref;
    if (ref < slot_count_) {
      tensor = &slots_[ref].tensor;
    } else {
      at = find(ref, tensor);
      if (at == kNoMark) return fail(argument_exists(argument) ? Fault::kGroup : Fault::kBadReference, ref);
      if (at >= disk_base_ && !may_touch_disk()) return fail(Fault::kDisk, ref);
    }
    CheckMark& note = marks_[at];
    if (note.end_row <= row_) return fail(OpenTransfers::in_flight(note, Role::kOutput) ? Fault::kInFlight : Fault::kNotLive, ref);
    if (note.touched == now_ && (ref != in_place_ || argument != static_cast<uint32_t>(info_->in_place_input))) {
      return fail(Fault::kAliasing, ref);
    }
    note.touched = now_;
    if (beside_transfers_ && OpenTransfers::in_flight(note, role)) return fail(Fault::kInFlight, ref);
    const bool written = note.written;
    if (role == Role::kInput) return written || fail(Fault::kReadBeforeWrite, ref);
    if (!written && (role == Role::kUpdated || adds || ref == in_place_)) return fail(Fault::kReadBeforeWrite, ref);
    if (at < slot_base_ && !check_write(ref, role, adds, written)) return false;
    if (note.update.norm != 0 && !UpdateProof::write(note.update)) return fail(Fault::kUpdate, ref);
    const bool holds_value = role != Role::kScratch;  // what a kernel leaves in its scratch is nobody's value
    if (written != holds_value) note.written = holds_value;
    return true;
  }

  static constexpr bool is_disk(Ref ref) { return ref != kNoRef && ref_region(ref) == Region::kDisk; }

  // Disk blocks are touched by transfers to or from memory alone.
  constexpr bool may_touch_disk() const { return info_->asynchronous && !(is_disk(refs_[0]) && is_disk(refs_[1])); }

  // Whether the argument's own tensor has been found: what is missing then is a later one of its group.
  constexpr bool argument_exists(uint32_t argument) const {
    const Tensor* tensor = nullptr;
    return find(refs_[argument], tensor) != kNoMark;
  }

  constexpr bool check_write(Ref ref, Role role, bool adds, bool written) {
    if (ref_region(ref) == Region::kState) {
      return (role == Role::kUpdated && may_change(plan_.state[ref_index(ref)].kind)) ||
             fail(Fault::kReadOnly, ref);
    }
    const ProgramId program = static_cast<ProgramId>(program_);
    if (program == ProgramId::kUpdate || program == ProgramId::kEvaluate) return fail(Fault::kReadOnly, ref);
    const bool overwrites_sum = !adds && (written || program == ProgramId::kMicroAdd);
    return !overwrites_sum || fail(Fault::kAccumulate, ref);
  }

  // Evaluation counts, and changes nothing else of State.
  constexpr bool may_change(StateKind kind) const {
    if ((info_->updates & update_bit(kind)) == 0) return false;
    return kind == StateKind::kScalars || program_ != static_cast<uint32_t>(ProgramId::kEvaluate);
  }

  // ---- groups, scratch and stack, transfers ----

  constexpr bool check_group() {
    const GroupAttribute group = *group_;
    if (group.tensors == 0) return fail(Fault::kGroup);
    // A reduction walks the group's Tensors, which stand side by side in Carried alone; State holds no gradients.
    const Region region = ref_region(gradients_);
    const bool reduces = info_->attribute == kAttributeKind<GroupAttribute>;
    if (region == Region::kState || (reduces && group.tensors > 1 && region != Region::kCarried)) return fail(Fault::kGroup, gradients_);
    StateKind kind = StateKind::kParameter;
    for (uint32_t i = 0; groups_ >> i != 0; ++i) {
      if ((groups_ >> i & 1u) == 0) continue;
      if (!check_group_argument(group, refs_[i], kind)) return false;
      kind = StateKind::kOptimizer;
    }
    return check_updates(group, reduces);
  }

  // Each tensor of the group: its norm taken, or its parameter updated.
  constexpr bool check_updates(const GroupAttribute& group, bool reduces) {
    const ProgramId program = static_cast<ProgramId>(program_);
    if (!update_.may_update(program)) return fail(Fault::kUpdate, gradients_);
    uint32_t first = group.first_norm;  // the entry of the norms that belongs to the group's first tensor
    if (!reduces) {
      if (ref_region(refs_[0]) != Region::kState || ref_index(refs_[0]) < kFirstTrained) return fail(Fault::kUpdate, refs_[0]);
      first = ref_index(refs_[0]) - kFirstTrained;
    }
    if (first > update_.trained() || group.tensors > update_.trained() - first) return fail(Fault::kUpdate, refs_[0]);
    for (uint32_t t = 0; t < group.tensors; ++t) {
      UpdateMark& gradient = mark(gradients_ + t).update;
      UpdateMark& parameter = marks_[kFirstTrained + first + t].update;
      const bool right = reduces ? update_.reduce(gradient, parameter, first + t) : update_.update(gradient, parameter, first + t, program);
      if (!right) return fail(Fault::kUpdate, gradients_ + t);
    }
    return true;
  }

  constexpr bool check_finish(const Row& row) {
    const bool of_norms = refs_[GradNormFinish::kNorms] == make_ref(Region::kState, kNormsIndex);
    if (program_ != static_cast<uint32_t>(ProgramId::kUpdate) || !of_norms) return fail(Fault::kUpdate);
    return update_.finish(plan_.attributes.of<ClipAttribute>()[row.attribute].max_norm) || fail(Fault::kUpdate);
  }

  // The tensors lie end to end, each shaped like its partner among the gradients, and `elements` covers them all.
  constexpr bool check_group_argument(const GroupAttribute& group, Ref first, StateKind kind) {
    uint64_t start = 0, end = 0, used = 0;
    for (uint32_t t = 0; t < group.tensors; ++t) {
      const Ref ref = first + t;
      const Tensor *found = nullptr, *partner = nullptr;
      if (find(ref, found) == kNoMark) return fail(Fault::kGroup, ref);
      if (ref_region(ref) == Region::kState && plan_.state[ref_index(ref)].kind != kind) return fail(Fault::kGroup, ref);
      const Tensor tensor = *found;
      if (tensor.dtype != DType::kF32) return fail(Fault::kGroup, ref);
      const bool alike = first == gradients_ || (find(gradients_ + t, partner) != kNoMark && same_shape(tensor, *partner) && tensor.bytes == partner->bytes);
      if (!alike) return fail(Fault::kGroup, ref);
      if (t == 0) start = tensor.offset;
      if (t != 0 && tensor.offset != end) return fail(Fault::kGroup, ref);
      end = tensor.offset + tensor.bytes;
      used = tensor.offset + tensor.elements() * sizeof(float) - start;
    }
    const bool covers = group.elements >= used / sizeof(float) && group.elements <= (end - start) / sizeof(float);
    return covers || fail(Fault::kGroup, first);
  }

  constexpr bool check_resources(const ShapedCall& call) {
    const KernelRules rules = *own_rules_;
    const uint32_t last = arity_ - 1;
    if (info_->arguments[last].role == Role::kScratch) {
      const uint64_t needed = rules.scratch_bytes(call), given = call.has(last) ? call[last].bytes : 0;
      if (given < needed) return fail(Fault::kScratch, refs_[last]);
    }
    const uint64_t stack = kFrameStackBytes + rules.stack_bytes(call);
    if (stack > stack_bytes_) {
      if (stack > plan_.worker_stack_bytes) return fail(Fault::kStack);
      stack_bytes_ = stack;
    }
    return true;
  }

  // touch() has left transfers alone: a start asks what any other row must ask, a wait must find its own pair.
  constexpr bool check_transfer(const Row& row) {
    CheckMark& destination = mark(refs_[0]);
    CheckMark& source = mark(refs_[1]);
    const uint32_t source_id = static_cast<uint32_t>(&source - marks_) + 1;
    const bool may = row.pass == Pass::kStart ? transfers_.start(destination, source, source_id)
                                              : transfers_.wait(destination, source, source_id);
    return may || fail(Fault::kInFlight, refs_[0]);
  }

  constexpr bool check_end() {
    for (uint32_t i = 0; i < slot_count_ + here_->disk.count; ++i) {
      const CheckMark& note = marks_[slot_base_ + i];
      const Ref ref = i < slot_count_ ? i : make_ref(Region::kDisk, i - slot_count_);
      if (note.filled_from != 0) return fail(Fault::kInFlight, ref);
      if (note.touched == 0) return fail(Fault::kUnused, ref);
    }
    if (program_ == static_cast<uint32_t>(ProgramId::kUpdate) && plan_.program(ProgramId::kMicroFirst).rows.count != 0 &&
        !update_.step_is_whole()) {
      return fail(Fault::kUpdate);
    }
    return !transfers_.any() || fail(Fault::kInFlight);
  }

  // What only the whole of the programs tells: that nothing is larger than it need be, and that a step is whole.
  constexpr bool check_step() {
    if (plan_.arena_bytes != plan_.state_bytes + plan_.carried_bytes + region_bytes_ || plan_.disk_bytes != disk_bytes_) {
      return fail(Fault::kArenaBytes);
    }
    return plan_.worker_stack_bytes == stack_bytes_ || fail(Fault::kStack);
  }

  // Hot members first: g++ finds a member of a constant by walking over those before it.
  uint32_t row_ = kNoRow;
  uint32_t now_ = 0;  // rows walked, of all programs
  const Slot* slots_ = nullptr;  // of the program being walked
  uint32_t slot_count_ = 0;
  uint32_t slot_base_;  // the first mark of these slots
  uint32_t disk_count_ = 0;
  CheckMark* marks_;
  const Ref* refs_ = nullptr;  // of the row being checked, as down to gradients_
  const KernelInfo* info_ = nullptr;
  const KernelRules* own_rules_ = nullptr;  // of its kernel
  uint32_t arity_ = 0;
  bool beside_transfers_ = false;  // it computes while some are under way
  Ref in_place_ = kNoRef;  // the tensor that the in-place pair shares, where it does
  const Tensor* tensors_[kMaxArguments] = {};
  uint32_t present_ = 0;  // which of them are there
  const GroupAttribute* group_ = nullptr;  // of a row that reduces or updates, as down to gradients_
  uint32_t groups_ = 0;                    // which arguments name groups
  Ref gradients_ = kNoRef;                 // the group that the row only reads

  LiveSlots live_;
  OpenTransfers transfers_;
  DiskStack disk_;
  uint32_t disk_base_ = 0;         // the first mark of its blocks
  const Program* here_ = nullptr;  // the program being walked
  uint32_t program_ = kProgramCount;

  const Plan& plan_;
  const BackendRules& rules_;
  uint32_t pool_counts_[AttributeTypes::kCount] = {};
  UpdateProof update_;
  uint64_t region_bytes_ = 0, disk_bytes_ = 0, stack_bytes_ = 0;  // the most that any program needs
  uint32_t carried_base_;
  Verdict verdict_;
};

}  // namespace proof

// Proves the plan, or names its first fault. Time is near-linear in rows and slots. `marks`: check_marks(plan) of them.
constexpr Verdict check(const Plan& plan, CheckMark* marks, const BackendRules& rules) {
  return proof::Checker(plan, marks, rules).check();
}

// The same with a workspace of its own, for the compiler: plan.h says
//   constexpr Verdict kVerdict = prove<kMarks>(kPlan, kCpuRules);
//   static_assert(PlanIsSafe<kVerdict.fault, kVerdict.program, kVerdict.row, kVerdict.slot>::value);
template <uint32_t marks>
constexpr Verdict prove(const Plan& plan, const BackendRules& rules) {
  CheckMark workspace[marks] = {};
  return check_marks(plan) > marks ? Verdict{Fault::kFormat} : check(plan, workspace, rules);
}

// Stops the build of a faulty plan with the fault in the message: PlanIsSafe<Fault::kOverlap, program, row, slot>.
template <Fault fault, uint32_t program, uint32_t row, uint32_t slot>
struct PlanIsSafe {
  static_assert(fault == Fault::kNone, "this plan is not safe: PlanIsSafe<fault, program, row, slot>, see lib/check.h");
  static constexpr bool value = fault == Fault::kNone;
};

}  // namespace reprise
