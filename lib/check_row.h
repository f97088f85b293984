// The part of the proof that concerns one row: its kernel and attribute, the slots born with it, its arguments, its group, its scratch
// and stack, its transfer. Shapes are judged by the kernel's family (lib/ops), scratch and stack by the backend's rules.
#pragma once

#include "lib/backend_rules.h"
#include "lib/check_overlap.h"
#include "lib/check_transfers.h"
#include "lib/check_walk.h"

namespace reprise::proof {

class RowProof : public Walk {
 public:
  constexpr RowProof(const Plan& plan, CheckMark* marks, const BackendRules& rules) : Walk(plan, marks), rules_(rules), update_(plan) {
    for (AttributeKind kind = 0; kind < AttributeTypes::kCount; ++kind) pool_counts_[kind] = attribute_count(plan.attributes, kind);
  }

 protected:
  constexpr void start_rows() {
    live_.start(here_->slots, marks_ + slot_base_);
    spill_.start(here_->spilled, marks_ + spill_base_);
    transfers_.start_program();
  }

  // The row is a copy, as are other small structs here: g++ reads a member of a local the faster.
  constexpr bool check_row(const Row row) {
    if (!find_kernel(row)) return false;
    if (live_.has_births(row_) && !check_births()) return false;
    if (spill_count_ != 0 && !check_spill_births()) return false;
    if (!check_arguments(row)) return false;
    const ShapedCall call = {row.op, row.pass, tensors_, present_, &plan_.attributes, row.attribute};
    if (const Fault fault = info_->shape_fault(call); fault != Fault::kNone) return fail(fault);
    if (has_group() && !check_group()) return false;
    if (!check_resources(call)) return false;
    if (info_->attribute == kAttributeKind<ClipAttribute> && !check_finish(row)) return false;
    return !info_->asynchronous() || check_transfer(row);
  }

  // Asked in place of comparing group_ with null, which g++ does not fold under its sanitizers.
  constexpr bool has_group() const { return info_->pass == Pass::kReduce || info_->pass == Pass::kUpdate; }

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
    const bool asynchronous = info_->asynchronous();
    if (row.queue != 0 && !asynchronous) return fail(Fault::kInFlight);
    beside_transfers_ = transfers_.any() && !asynchronous;
    refs_ = pool.data + row.first_argument;
    group_ = has_group() ? group_of(plan_.attributes, attribute, row.attribute) : nullptr;
    has_keeper_ = false;
    in_place_ = kNoRef;
    const int32_t output = info_->in_place_output;
    if (output >= 0 && refs_[output] == refs_[info_->in_place_input]) in_place_ = refs_[output];
    return true;
  }

  // ---- births ----

  constexpr bool check_births() {
    const uint32_t moved = info_->moves ? moved_slot() : kNoSlot;
    const Fault fault = live_.insert_births(row_, moved, refs_[0]);
    return fault == Fault::kNone || fail(fault, live_.newcomer());
  }

  // The source of a move row that was there before and dies with it: its destination, born there, may overlap it (memmove semantics).
  constexpr uint32_t moved_slot() const {
    if (refs_[0] >= slot_count_ || refs_[1] >= slot_count_) return kNoSlot;
    const Slot &to = slots_[refs_[0]], &from = slots_[refs_[1]];
    return to.first_row == row_ && from.first_row < row_ && from.end_row == row_ + 1 ? refs_[1] : kNoSlot;
  }

  constexpr bool check_spill_births() {
    const Fault fault = spill_.insert_births(row_);
    return fault == Fault::kNone || fail(fault, make_ref(Region::kSpill, spill_.newcomer()));
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
        if ((ref == numbers_) != (argument.host == HostSlot::kLabels)) return fail(Fault::kHostSlot, ref);
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

  // Of arguments that are not plain f32: scratch is the program's own and of any type; scalars are state[0]; labels, starts of
  // documents and pairs are read from the host's slots, which nothing else touches. Of those labels alone may be f32.
  constexpr bool check_storage(const ArgumentInfo& argument, Ref ref, DType dtype) {
    const Storage storage = argument.storage;
    if (argument.role != Role::kScratch && !may_store(storage, dtype)) return fail(Fault::kDType, ref);
    if (ref == numbers_) return fail(Fault::kHostSlot, ref);
    if (storage == Storage::kActivation) return true;
    if (storage == Storage::kWeight) return takes_weights(own_rules_->weights, dtype) || fail(Fault::kDType, ref);
    if (storage == Storage::kScratch && ref_region(ref) != Region::kProgram) return fail(Fault::kReadOnly, ref);
    if (storage == Storage::kScalars && ref != make_ref(Region::kState, kScalarsIndex)) return fail(Fault::kScalars, ref);
    const bool right = (argument.host == HostSlot::kLabels) == (ref == here_->labels) &&
                       (argument.host == HostSlot::kDocumentStart) == (ref == here_->document_start) &&
                       (argument.host == HostSlot::kPairs) == (ref == here_->pairs);
    return right || fail(Fault::kHostSlot, ref);
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
      if (at >= spill_base_ && !may_touch_spilled()) return fail(Fault::kSpill, ref);
      if (at < carried_base_ && !lies_in_arena(plan_.state.data[at].kind) && !may_touch_away(ref)) return fail(Fault::kSpill, ref);
    }
    if (at < carried_base_ && !check_keeper(plan_.state.data[at], ref)) return false;
    CheckMark& note = marks_[at];
    if (note.end_row <= row_) return fail(OpenTransfers::in_flight(note, Role::kOutput) ? Fault::kInFlight : Fault::kNotLive, ref);
    if (note.touched == now_ && (ref != in_place_ || argument != static_cast<uint32_t>(info_->in_place_input))) {
      return fail(Fault::kAliasing, ref);
    }
    note.touched = now_;
    if (beside_transfers_ && OpenTransfers::in_flight(note, role)) return fail(Fault::kInFlight, ref);
    const bool written = note.written;
    if (role == Role::kInput) {
      if (at >= carried_base_ && at < slot_base_) note.update.is_copied = static_cast<ProgramId>(program_) == ProgramId::kMicroLast;
      return written || fail(Fault::kReadBeforeWrite, ref);
    }
    if (!written && (role == Role::kUpdated || adds || ref == in_place_)) return fail(Fault::kReadBeforeWrite, ref);
    if (written && at >= slot_base_ && role == Role::kOutput && info_->carrier == Carrier::kWeights) return fail(Fault::kRefilled, ref);
    const bool ends_transfer = role == Role::kUpdated && info_->asynchronous();  // whose start was the write
    if (at < slot_base_ && !ends_transfer && !check_write(ref, role, adds, written)) return false;
    if (note.update.norm != 0 && !UpdateProof::write(note.update)) return fail(Fault::kUpdate, ref);
    const bool holds_value = role != Role::kScratch;  // what a kernel leaves in its scratch is nobody's value
    if (written != holds_value) note.written = holds_value;
    return true;
  }

  // A row updates moments of one rank or of all, and none else touches those of one.
  constexpr bool check_keeper(const StateTensor& state, Ref ref) {
    if (state.kind != StateKind::kOptimizer) return true;
    const bool updates = info_->pass == Pass::kUpdate && static_cast<ProgramId>(program_) == ProgramId::kUpdate;
    if (state.keeper != kEveryRank && !updates) return fail(Fault::kUpdate, ref);
    const bool alike = !has_keeper_ || keeper_ == state.keeper;
    keeper_ = state.keeper, has_keeper_ = true;
    return alike || fail(Fault::kRanks, ref);
  }

  // Of a reference that exists.
  constexpr bool is_on_level(Ref ref) const {
    if (ref == kNoRef) return false;
    if (ref_region(ref) != Region::kState) return ref_region(ref) == Region::kSpill;
    return ref_index(ref) < plan_.state.count && plan_.state[ref_index(ref)].kind == StateKind::kOffloaded;
  }

  // What lies on the second level is touched by transfers to or from memory alone.
  constexpr bool may_touch_spilled() const { return info_->carrier == Carrier::kSpill && !(is_on_level(refs_[0]) && is_on_level(refs_[1])); }

  // A streamed parameter is touched by loads into slots alone, and these load nothing else.
  constexpr bool may_touch_away(Ref ref) const {
    if (plan_.state[ref_index(ref)].kind == StateKind::kOffloaded) return may_touch_spilled();
    return info_->carrier == Carrier::kWeights && refs_[info_->source()] == ref;
  }
  constexpr bool loads_what_is_streamed() const {
    const Ref from = refs_[info_->source()];
    const bool streamed = ref_region(from) == Region::kState && plan_.state[ref_index(from)].kind == StateKind::kStreamed;
    return streamed && ref_region(refs_[0]) == Region::kProgram;
  }

  // Whether the argument's own tensor has been found: what is missing then is a later one of its group.
  constexpr bool argument_exists(uint32_t argument) const {
    const Tensor* tensor = nullptr;
    return find(refs_[argument], tensor) != kNoMark;
  }

  constexpr bool check_write(Ref ref, Role role, bool adds, bool written) {
    if (ref_region(ref) == Region::kState) {
      if (plan_.state[ref_index(ref)].kind == StateKind::kOffloaded && trains()) return true;  // which a transfer alone touches
      return (role == Role::kUpdated && may_change(plan_.state[ref_index(ref)].kind)) ||
             fail(Fault::kReadOnly, ref);
    }
    const ProgramId program = static_cast<ProgramId>(program_);
    if (!runs_micro_batch(program)) return fail(Fault::kReadOnly, ref);
    if (adds || (program == ProgramId::kMicroFirst && !written)) return true;
    UpdateMark& gradient = mark(ref).update;  // of micro_last: the sum of all ranks begins, once
    const bool begins_again = gradient.is_copied && !gradient.begins_again;
    gradient.begins_again = true;
    return begins_again || fail(Fault::kAccumulate, ref);
  }

  constexpr bool trains() const {
    return program_ != static_cast<uint32_t>(ProgramId::kEvaluate) && program_ != static_cast<uint32_t>(ProgramId::kGenerate);
  }

  // Evaluation counts, and changes nothing else of State; generation changes nothing.
  constexpr bool may_change(StateKind kind) const {
    if ((info_->updates & update_bit(kind)) == 0) return false;
    if (program_ == static_cast<uint32_t>(ProgramId::kGenerate)) return false;
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
      if (!reduces && has_keeper_ && keeper_ != kEveryRank) update_.owe(parameter, keeper_);
    }
    return true;
  }

  constexpr bool check_finish(const Row& row) {
    const bool of_norms = refs_[GradNormFinish::kNorms] == make_ref(Region::kState, kNormsIndex);
    if (program_ != static_cast<uint32_t>(ProgramId::kUpdate) || !of_norms) return fail(Fault::kUpdate);
    return update_.finish(plan_.attributes.of<ClipAttribute>()[row.attribute].max_norm) || fail(Fault::kUpdate);
  }

  // The tensors lie end to end, each shaped like its partner among the gradients, and `elements` covers them all. Those that are not f32 have
  // other distances than gradients have, so one stands alone.
  constexpr bool check_group_argument(const GroupAttribute& group, Ref first, StateKind kind) {
    uint64_t start = 0, end = 0, used = 0;
    for (uint32_t t = 0; t < group.tensors; ++t) {
      const Ref ref = first + t;
      const Tensor *found = nullptr, *partner = nullptr;
      if (find(ref, found) == kNoMark) return fail(Fault::kGroup, ref);
      if (ref_region(ref) == Region::kState && plan_.state[ref_index(ref)].kind != kind) return fail(Fault::kGroup, ref);
      const Tensor tensor = *found;
      const bool plain = tensor.dtype == DType::kF32;
      if (!plain && (group.tensors != 1 || first == gradients_)) return fail(Fault::kGroup, ref);
      const bool alike = first == gradients_ || (find(gradients_ + t, partner) != kNoMark && same_shape(tensor, *partner) &&
                                                 (!plain || tensor.bytes == partner->bytes));
      if (!alike) return fail(Fault::kGroup, ref);
      if (t == 0) start = tensor.offset;
      if (t != 0 && tensor.offset != end) return fail(Fault::kGroup, ref);
      end = tensor.offset + tensor.bytes;
      used = tensor.offset + tensor.elements() * sizeof(float) - start;
      if (!plain) return group.elements == tensor.elements() || fail(Fault::kGroup, ref);
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
    const uint64_t stack = rules_.frame_stack_bytes + rules.stack_bytes(call);
    if (stack > stack_bytes_) {
      if (stack > plan_.worker_stack_bytes) return fail(Fault::kStack);
      stack_bytes_ = stack;
    }
    return true;
  }

  // What a rank shares in a micro-batch, or spreads when it alone has updated it.
  constexpr Fault share_fault(const Row& row) {
    const ProgramId program = static_cast<ProgramId>(program_);
    const uint32_t root = plan_.attributes.of<ShareAttribute>()[row.attribute].root;
    const bool spreads = row.op == Op::kSpread;
    if (root >= plan_.ranks || !(spreads ? program == ProgramId::kUpdate : runs_micro_batch(program))) return Fault::kRanks;
    if (!spreads || row.pass == Pass::kWait) return Fault::kNone;
    const bool is_owed = ref_region(refs_[0]) == Region::kState && update_.spread(mark(refs_[0]).update, root);
    return is_owed ? Fault::kNone : Fault::kUpdate;
  }

  // touch() has left transfers alone: a start asks what any other row must ask, a wait must find its own pairs. What a gather reads to know
  // where it reads, its tokens, travels to the places as it were: the wait reads the same tokens again.
  constexpr bool check_transfer(const Row& row) {
    const uint32_t pairs = info_->source();
    if (info_->carrier == Carrier::kPeers) {
      if (const Fault fault = share_fault(row); fault != Fault::kNone) return fail(fault, refs_[0]);
    }
    if (info_->carrier == Carrier::kWeights && !loads_what_is_streamed()) return fail(Fault::kSpill, refs_[pairs]);
    for (uint32_t i = 0; i < pairs; ++i) {
      CheckMark& destination = mark(refs_[i]);
      CheckMark& source = mark(refs_[pairs + i]);
      const uint32_t source_id = static_cast<uint32_t>(&source - marks_) + 1;
      if (row.pass == Pass::kStart && OpenTransfers::in_flight(source, Role::kInput)) return fail(Fault::kInFlight, refs_[pairs + i]);
      const bool right = row.pass == Pass::kStart ? transfers_.start(destination, source, source_id) : transfers_.wait(destination, source, source_id);
      if (!right) return fail(Fault::kInFlight, refs_[i]);
    }
    return true;
  }

  const Ref* refs_ = nullptr;  // of the row being checked, as down to gradients_
  const KernelInfo* info_ = nullptr;
  const KernelRules* own_rules_ = nullptr;  // of its kernel
  uint32_t arity_ = 0;
  bool beside_transfers_ = false;  // it computes while some are under way
  Ref in_place_ = kNoRef;          // the tensor that the in-place pair shares, where it does
  const Tensor* tensors_[kMaxArguments] = {};
  uint32_t present_ = 0;                   // which of them are there
  const GroupAttribute* group_ = nullptr;  // where has_group()
  uint32_t groups_ = 0;                    // which arguments name groups
  uint32_t keeper_ = kEveryRank;           // of the moments that it updates, where has_keeper_
  bool has_keeper_ = false;
  Ref gradients_ = kNoRef;                 // the group that the row only reads

  LiveSlots live_;
  OpenTransfers transfers_;
  SpillStack spill_;
  const BackendRules& rules_;
  uint32_t pool_counts_[AttributeTypes::kCount] = {};
  UpdateProof update_;
  uint64_t stack_bytes_ = 0;  // the most that any row needs
};

}  // namespace reprise::proof
