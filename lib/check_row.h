// The part of the proof that concerns one row: its kernel and attribute, the slots whose lifetimes
// begin with it (births), its arguments, its group, its scratch and stack, its transfer. The
// kernel's family (lib/ops) checks the shapes. The backend's rules give the bytes of scratch and
// stack.
#pragma once

#include "lib/backend_rules.h"
#include "lib/check_overlap.h"
#include "lib/check_transfers.h"
#include "lib/check_walk.h"

namespace reprise::proof {

// The proof of the rows of a plan, one program after another.
class RowProof : public Walk {
 public:
  // Starts a proof. `plan`, `marks` (check_marks(plan) marks) and `rules` are borrowed for the
  // object's lifetime.
  constexpr RowProof(const Plan& plan, CheckMark* marks, const BackendRules& rules)
      : Walk(plan, marks), rules_(rules), update_(plan) {
    for (AttributeKind kind = 0; kind < AttributeTypes::kCount; ++kind)
      pool_counts_[kind] = attribute_count(plan.attributes, kind);
  }

 protected:
  // Starts the rows of the current program.
  constexpr void start_rows() {
    live_.start(here_->slots, marks_ + slot_base_);
    spill_.start(here_->spilled, marks_ + spill_base_);
    transfers_.start_program();
  }

  // Checks one row. Copies the row, because g++ evaluates a member of a local variable faster in a
  // constant expression. Other functions of this file copy small structs for the same reason.
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

  // True if the row's kernel has a group. This function does not compare group_ with null, because
  // that would not be a constant expression for g++ with sanitizers.
  constexpr bool has_group() const { return info_->pass == Pass::kReduce || info_->pass == Pass::kUpdate; }

  // Finds the row's kernel, attribute and references. Other checks may use them only after this
  // check has passed.
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
    has_owner_ = false;
    in_place_ = kNoRef;
    const int32_t output = info_->in_place_output;
    if (output >= 0 && refs_[output] == refs_[info_->in_place_input]) in_place_ = refs_[output];
    return true;
  }

  // ---- births ----

  // Inserts the slots whose lifetimes begin with the row.
  constexpr bool check_births() {
    const uint32_t moved = info_->moves ? moved_slot() : kNoSlot;
    const Fault fault = live_.insert_births(row_, moved, refs_[0]);
    return fault == Fault::kNone || fail(fault, live_.newcomer());
  }

  // Returns the source of a move row if the source was live before the row and its lifetime ends
  // with the row, else kNoSlot. The destination may overlap this source if its own lifetime begins
  // with the row (memmove semantics).
  constexpr uint32_t moved_slot() const {
    if (refs_[0] >= slot_count_ || refs_[1] >= slot_count_) return kNoSlot;
    const Slot &to = slots_[refs_[0]], &from = slots_[refs_[1]];
    return to.first_row == row_ && from.first_row < row_ && from.end_row == row_ + 1 ? refs_[1] : kNoSlot;
  }

  // Inserts the spilled blocks whose lifetimes begin with the row.
  constexpr bool check_spill_births() {
    const Fault fault = spill_.insert_births(row_);
    return fault == Fault::kNone || fail(fault, make_ref(Region::kSpill, spill_.newcomer()));
  }

  // ---- arguments: presence, type, lifetime, permission to read or write ----

  // Checks every argument of the row, and collects its tensors and its groups.
  constexpr bool check_arguments(const Row& row) {
    const uint32_t arity = arity_, accumulate = row.accumulate;
    if (accumulate >> arity != 0) return fail(Fault::kAccumulate);
    bool writes = false, has_stored = false;
    // The type of the row's first activation, which all its activations must have.
    DType stored = DType::kF32;
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

  // Checks an argument whose storage is not kF32. Scratch may have any type but must be a slot of
  // the program. Scalars must be state[0]. An argument for labels, document starts or pairs must
  // name the host's slot for them, and no other argument may name that slot. No argument that is
  // checked here may name labels that are f32 numbers.
  constexpr bool check_storage(const ArgumentInfo& argument, Ref ref, DType dtype) {
    const Storage storage = argument.storage;
    if (argument.role != Role::kScratch && !may_store(storage, dtype)) return fail(Fault::kDType, ref);
    if (ref == numbers_) return fail(Fault::kHostSlot, ref);
    if (storage == Storage::kActivation) return true;
    if (storage == Storage::kWeight) return takes_weights(own_rules_->weights, dtype) || fail(Fault::kDType, ref);
    if (storage == Storage::kScratch && ref_region(ref) != Region::kProgram) return fail(Fault::kReadOnly, ref);
    if (storage == Storage::kScalars && ref != make_ref(Region::kState, kScalarsIndex))
      return fail(Fault::kScalars, ref);
    const bool right = (argument.host == HostSlot::kLabels) == (ref == here_->labels) &&
                       (argument.host == HostSlot::kDocumentStart) == (ref == here_->document_start) &&
                       (argument.host == HostSlot::kPairs) == (ref == here_->pairs);
    return right || fail(Fault::kHostSlot, ref);
  }

  // Checks the tensors of a group except the first, which check_arguments() has checked.
  constexpr bool touch_group(uint32_t argument, Ref first, Role role) {
    const Tensor* tensor = nullptr;
    for (uint32_t t = 1; t < group_->tensors; ++t) {
      if (!touch(argument, first + t, role, false, tensor)) return false;
    }
    return true;
  }

  // Checks one tensor of an argument: it exists, is live, is named once, is not in flight, and is
  // written before it is read.
  constexpr bool touch(uint32_t argument, Ref ref, Role role, bool adds, const Tensor*& tensor) {
    uint32_t at = slot_base_ + ref;
    if (ref < slot_count_) {
      tensor = &slots_[ref].tensor;
    } else {
      at = find(ref, tensor);
      if (at == kNoMark) return fail(argument_exists(argument) ? Fault::kGroup : Fault::kBadReference, ref);
      if (at >= spill_base_ && !may_touch_spilled()) return fail(Fault::kSpill, ref);
      if (at < carried_base_ && !lies_in_arena(plan_.state.data[at].kind) && !may_touch_away(ref))
        return fail(Fault::kSpill, ref);
    }
    if (at < carried_base_ && !check_owner(plan_.state.data[at], ref)) return false;
    CheckMark& note = marks_[at];
    if (note.end_row <= row_)
      return fail(OpenTransfers::in_flight(note, Role::kOutput) ? Fault::kInFlight : Fault::kNotLive, ref);
    if (note.touched == now_ && (ref != in_place_ || argument != static_cast<uint32_t>(info_->in_place_input))) {
      return fail(Fault::kAliasing, ref);
    }
    note.touched = now_;
    if (beside_transfers_ && OpenTransfers::in_flight(note, role)) return fail(Fault::kInFlight, ref);
    const bool written = note.written;
    if (role == Role::kInput) {
      if (at >= carried_base_ && at < slot_base_)
        note.update.is_copied = static_cast<ProgramId>(program_) == ProgramId::kMicroLast;
      return written || fail(Fault::kReadBeforeWrite, ref);
    }
    if (!written && (role == Role::kUpdated || adds || ref == in_place_)) return fail(Fault::kReadBeforeWrite, ref);
    if (written && at >= slot_base_ && role == Role::kOutput && info_->carrier == Carrier::kWeights)
      return fail(Fault::kRefilled, ref);
    // A wait names the destination that its start has already written, so check_write() is not
    // called for it. share_fault() checks a share in place.
    const bool ends_transfer = role == Role::kUpdated && info_->asynchronous();
    if (at < slot_base_ && !ends_transfer && !check_write(ref, role, adds, written)) return false;
    if (note.update.norm != 0 && !UpdateProof::write(note.update)) return fail(Fault::kUpdate, ref);
    const bool holds_value = role != Role::kScratch;  // no row may read what a kernel leaves in its scratch
    if (written != holds_value) note.written = holds_value;
    return true;
  }

  // Checks the owner of moments. Only updates in kUpdate touch moments of a single owner, and all
  // moments of a row have the same owner.
  constexpr bool check_owner(const StateTensor& state, Ref ref) {
    if (state.kind != StateKind::kOptimizer) return true;
    const bool updates = info_->pass == Pass::kUpdate && static_cast<ProgramId>(program_) == ProgramId::kUpdate;
    if (state.owner != kEveryRank && !updates) return fail(Fault::kUpdate, ref);
    const bool alike = !has_owner_ || owner_ == state.owner;
    owner_ = state.owner, has_owner_ = true;
    return alike || fail(Fault::kRanks, ref);
  }

  // True if `ref` names a tensor of the second level: a block or an offloaded moment.
  constexpr bool is_on_level(Ref ref) const {
    if (ref == kNoRef) return false;
    if (ref_region(ref) != Region::kState) return ref_region(ref) == Region::kSpill;
    return ref_index(ref) < plan_.state.count && plan_.state[ref_index(ref)].kind == StateKind::kOffloaded;
  }

  // True if the row may touch the second level: it is a spill transfer, and its source or its
  // destination is not in the second level.
  constexpr bool may_touch_spilled() const {
    return info_->carrier == Carrier::kSpill && !(is_on_level(refs_[0]) && is_on_level(refs_[1]));
  }

  // True if the row may touch State tensor `ref`, which is not in the arena. Transfers may touch an
  // offloaded tensor; loads may read a streamed tensor.
  constexpr bool may_touch_away(Ref ref) const {
    if (plan_.state[ref_index(ref)].kind == StateKind::kOffloaded) return may_touch_spilled();
    return info_->carrier == Carrier::kWeights && refs_[info_->source()] == ref;
  }
  // True if the row loads a streamed parameter into a slot. A load may do nothing else.
  constexpr bool loads_what_is_streamed() const {
    const Ref from = refs_[info_->source()];
    const bool streamed =
        ref_region(from) == Region::kState && plan_.state[ref_index(from)].kind == StateKind::kStreamed;
    return streamed && ref_region(refs_[0]) == Region::kProgram;
  }

  // True if the tensor that the argument names exists. touch() calls this function when a tensor of
  // the argument is missing. If the result is true, the missing tensor is a later one of a group.
  constexpr bool argument_exists(uint32_t argument) const {
    const Tensor* tensor = nullptr;
    return find(refs_[argument], tensor) != kNoMark;
  }

  // Checks a write to State or to Carried.
  constexpr bool check_write(Ref ref, Role role, bool adds, bool written) {
    if (ref_region(ref) == Region::kState) {
      // touch() has ensured that the row is a transfer.
      if (plan_.state[ref_index(ref)].kind == StateKind::kOffloaded && trains()) return true;
      return (role == Role::kUpdated && may_change(plan_.state[ref_index(ref)].kind)) ||
             fail(Fault::kReadOnly, ref);
    }
    const ProgramId program = static_cast<ProgramId>(program_);
    if (!runs_micro_batch(program)) return fail(Fault::kReadOnly, ref);
    if (adds || (program == ProgramId::kMicroFirst && !written)) return true;
    // In micro_last, after a row has copied a gradient, one row may overwrite the gradient: with
    // this write the sum over all ranks begins.
    UpdateMark& gradient = mark(ref).update;
    const bool begins_again = gradient.is_copied && !gradient.begins_again;
    gradient.begins_again = true;
    return begins_again || fail(Fault::kAccumulate, ref);
  }

  // True if the program is part of a step.
  constexpr bool trains() const {
    return program_ != static_cast<uint32_t>(ProgramId::kEvaluate) &&
           program_ != static_cast<uint32_t>(ProgramId::kGenerate);
  }

  // True if the row may change State of kind `kind` in this program. Evaluation may change only the
  // scalars; generation may change nothing.
  constexpr bool may_change(StateKind kind) const {
    if ((info_->updates & update_bit(kind)) == 0) return false;
    if (program_ == static_cast<uint32_t>(ProgramId::kGenerate)) return false;
    return kind == StateKind::kScalars || program_ != static_cast<uint32_t>(ProgramId::kEvaluate);
  }

  // ---- groups, scratch and stack, transfers ----

  // Checks the row's group: the addresses of its tensors, and the update of each tensor.
  constexpr bool check_group() {
    const GroupAttribute group = *group_;
    if (group.tensors == 0) return fail(Fault::kGroup);
    // A reduction loops over the Tensor entries of its group. They are adjacent only in Carried,
    // and State has no gradients.
    const Region region = ref_region(gradients_);
    const bool reduces = info_->attribute == kAttributeKind<GroupAttribute>;
    if (region == Region::kState || (reduces && group.tensors > 1 && region != Region::kCarried))
      return fail(Fault::kGroup, gradients_);
    StateKind kind = StateKind::kParameter;
    for (uint32_t i = 0; groups_ >> i != 0; ++i) {
      if ((groups_ >> i & 1u) == 0) continue;
      if (!check_group_argument(group, refs_[i], kind)) return false;
      kind = StateKind::kOptimizer;
    }
    return check_updates(group, reduces);
  }

  // Checks each tensor of the group against the step's updates: a reduction computes its gradient's
  // norm, or an update changes its parameter.
  constexpr bool check_updates(const GroupAttribute& group, bool reduces) {
    const ProgramId program = static_cast<ProgramId>(program_);
    if (!update_.may_update(program)) return fail(Fault::kUpdate, gradients_);
    uint32_t first = group.first_norm;  // index of the first tensor's entry in the norms
    if (!reduces) {
      if (ref_region(refs_[0]) != Region::kState || ref_index(refs_[0]) < kFirstTrained)
        return fail(Fault::kUpdate, refs_[0]);
      first = ref_index(refs_[0]) - kFirstTrained;
    }
    if (first > update_.trained() || group.tensors > update_.trained() - first) return fail(Fault::kUpdate, refs_[0]);
    for (uint32_t t = 0; t < group.tensors; ++t) {
      UpdateMark& gradient = mark(gradients_ + t).update;
      UpdateMark& parameter = marks_[kFirstTrained + first + t].update;
      const bool right = reduces ? update_.reduce(gradient, parameter, first + t)
                                 : update_.update(gradient, parameter, first + t, program);
      if (!right) return fail(Fault::kUpdate, gradients_ + t);
      if (!reduces && has_owner_ && owner_ != kEveryRank) update_.note_pending(parameter, owner_);
    }
    return true;
  }

  // Checks the row that computes the clip factor.
  constexpr bool check_finish(const Row& row) {
    const bool of_norms = refs_[GradNormFinish::kNorms] == make_ref(Region::kState, kNormsIndex);
    if (program_ != static_cast<uint32_t>(ProgramId::kUpdate) || !of_norms) return fail(Fault::kUpdate);
    return update_.finish(plan_.attributes.of<ClipAttribute>()[row.attribute].max_norm) || fail(Fault::kUpdate);
  }

  // Checks that the group's tensors are adjacent, that each has the shape of its gradient, and that
  // `elements` covers them. A tensor that is not f32 has other offsets than its gradient, so it
  // must be alone in its group.
  constexpr bool check_group_argument(const GroupAttribute& group, Ref first, StateKind kind) {
    uint64_t start = 0, end = 0, used = 0;
    for (uint32_t t = 0; t < group.tensors; ++t) {
      const Ref ref = first + t;
      const Tensor *found = nullptr, *partner = nullptr;
      if (find(ref, found) == kNoMark) return fail(Fault::kGroup, ref);
      if (ref_region(ref) == Region::kState && plan_.state[ref_index(ref)].kind != kind)
        return fail(Fault::kGroup, ref);
      const Tensor tensor = *found;
      const bool plain = tensor.dtype == DType::kF32;
      if (!plain && (group.tensors != 1 || first == gradients_)) return fail(Fault::kGroup, ref);
      const bool alike =
          first == gradients_ || (find(gradients_ + t, partner) != kNoMark && same_shape(tensor, *partner) &&
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

  // Checks the bytes of the scratch, and notes the maximum of the stack's bytes.
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

  // Returns the fault of a Carrier::kPeers row. In a micro-batch such a row shares a value; in the
  // update it broadcasts a parameter from its owner.
  constexpr Fault share_fault(const Row& row) {
    const ProgramId program = static_cast<ProgramId>(program_);
    const uint32_t root = plan_.attributes.of<ShareAttribute>()[row.attribute].root;
    const bool is_in_place = row.op == Op::kShareInPlace;
    if (root >= plan_.ranks || !(is_in_place ? program == ProgramId::kUpdate : runs_micro_batch(program)))
      return Fault::kRanks;
    if (!is_in_place || row.pass == Pass::kWait) return Fault::kNone;
    const bool is_pending = ref_region(refs_[0]) == Region::kState && update_.share(mark(refs_[0]).update, root);
    return is_pending ? Fault::kNone : Fault::kUpdate;
  }

  // Checks the rules of a start or a wait that touch() has not checked. A start obeys the rules of
  // any other row. A wait must name the same destinations and sources as its start. The tokens of a
  // gather select the table's rows; they count as the source of `places`, because the wait reads
  // them again.
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
      if (row.pass == Pass::kStart && OpenTransfers::in_flight(source, Role::kInput))
        return fail(Fault::kInFlight, refs_[pairs + i]);
      const bool right = row.pass == Pass::kStart ? transfers_.start(row.op, destination, source, source_id)
                                                  : transfers_.wait(row.op, destination, source, source_id);
      if (!right) return fail(Fault::kInFlight, refs_[i]);
    }
    return true;
  }

  const Ref* refs_ = nullptr;  // references of the row; members down to gradients_ belong to the row
  const KernelInfo* info_ = nullptr;
  const KernelRules* own_rules_ = nullptr;  // rules of the row's kernel
  uint32_t arity_ = 0;
  bool beside_transfers_ = false;  // true if transfers are in progress and the row is not asynchronous
  Ref in_place_ = kNoRef;          // tensor that both arguments of the in-place pair name; kNoRef: they differ
  const Tensor* tensors_[kMaxArguments] = {};
  uint32_t present_ = 0;                   // bit n: argument n is present
  const GroupAttribute* group_ = nullptr;  // null unless has_group()
  uint32_t groups_ = 0;                    // bit n: argument n names a group
  uint32_t owner_ = kEveryRank;           // owner of the moments that the row updates, if has_owner_
  bool has_owner_ = false;
  Ref gradients_ = kNoRef;  // first tensor of the group that the row reads and does not write

  LiveSlots live_;
  OpenTransfers transfers_;
  SpillStack spill_;
  const BackendRules& rules_;
  uint32_t pool_counts_[AttributeTypes::kCount] = {};
  UpdateProof update_;
  uint64_t stack_bytes_ = 0;  // maximum over the rows so far
};

}  // namespace reprise::proof
