// See case_plan.h.
//
// Arena = [ State: scalars, inputs, what is updated | Carried: the gradients of a group | the program: outputs, scratch ]
#include "tests/ops/case_plan.h"

#include <algorithm>

namespace reprise::test {
namespace {

// At the end of a region, and the guard behind it.
void append(Tensor& tensor, uint64_t& end) {
  tensor.offset = end;
  end += tensor.bytes + CasePlan::kGuard;
}

// As a plan has it: norms are doubles, each in the place of two floats.
Tensor planned(const KernelCase& c, uint32_t i) {
  Tensor tensor = c.tensor(i);
  if (c.op == Op::kGradNorm && tensor.dtype == DType::kI64) tensor.dtype = DType::kF32, tensor.shape[0] *= 2;
  return tensor;
}

StateKind kind_of(const KernelCase& c, uint32_t i) {
  if (c.info().attribute == AttributeKind::kUpdate) return i == 0 ? StateKind::kParameter : StateKind::kOptimizer;
  return c.op == Op::kGradNorm ? StateKind::kNorms : StateKind::kBuffer;
}

// The gradients that a row reduces or applies.
bool is_gradients(const KernelCase& c, uint32_t i) {
  const AttributeKind kind = c.info().attribute;
  const bool grouped = kind == AttributeKind::kGroup || kind == AttributeKind::kUpdate;
  return grouped && c.info().arguments[i].role == Role::kInput && !is_scalars(c, i);
}

uint64_t scratch_bytes_of(const Backend& backend, const KernelCase& c) {
  if (c.info().arguments[c.info().arity() - 1].role != Role::kScratch) return 0;
  const Tensor* tensors[kMaxArguments] = {};
  for (uint32_t i = 0; i < c.arguments.size(); ++i) tensors[i] = c.has(i) ? &c.tensor(i) : nullptr;
  return backend.scratch_bytes(c.op, c.pass, tensors);
}

}  // namespace

CasePlan::CasePlan(const Backend& backend, const KernelCase& c, bool in_place)
    : case_(c), scratch_bytes_(scratch_bytes_of(backend, c)) {
  const KernelInfo& info = c.info();
  add_state(*scalars_tensor(), StateKind::kScalars);
  const auto shared_input = static_cast<uint32_t>(info.in_place_input);
  for (uint32_t i = 0; i < c.arguments.size(); ++i) {
    const bool shares = in_place && i == shared_input;
    arguments_.push_back(shares ? arguments_[static_cast<uint32_t>(info.in_place_output)] : c.has(i) ? place(i) : kNoRef);
  }
  if (info.arity() > c.arguments.size()) {
    const Tensor scratch = *shaped({static_cast<uint32_t>(scratch_bytes_)}, DType::kU8);
    arguments_.push_back(scratch_bytes_ == 0 ? kNoRef : add_slot(scratch, SlotKind::kScratch));
  }
  rows_.push_back({.op = c.op, .pass = c.pass, .accumulate = static_cast<uint8_t>(c.accumulate), .first_argument = 0});
  plan_.name = "case";
  plan_.backend = backend.name;
  plan_.attributes = pools_of(c.attribute);
  join();
}

Ref CasePlan::place(uint32_t i) {
  if (is_scalars(case_, i)) return make_ref(Region::kState, 0);
  if (is_gradients(case_, i)) return place_group(i);
  if (case_.info().arguments[i].role == Role::kOutput) return add_slot(planned(case_, i), SlotKind::kTransient);
  return add_state(planned(case_, i), kind_of(case_, i));
}

// Side by side, without guards between them.
Ref CasePlan::place_group(uint32_t i) {
  const Ref first = make_ref(Region::kCarried, static_cast<uint32_t>(carried_.size()));
  const uint64_t start = carried_end_;
  carried_ = case_.group.empty() ? std::vector<Tensor>{case_.tensor(i)} : case_.group;
  for (Tensor& tensor : carried_) tensor.offset += start;
  carried_end_ = carried_.back().offset + carried_.back().bytes + kGuard;
  return first;
}

Ref CasePlan::add_state(Tensor tensor, StateKind kind) {
  append(tensor, state_end_);
  state_.push_back({.tensor = tensor, .kind = kind});
  return make_ref(Region::kState, static_cast<uint32_t>(state_.size() - 1));
}

Ref CasePlan::add_slot(Tensor tensor, SlotKind kind) {
  append(tensor, slots_end_);
  const auto index = static_cast<uint32_t>(slots_.size());
  slots_.push_back({.tensor = tensor, .below = index == 0 ? kNoSlot : index - 1, .kind = kind});
  return make_ref(Region::kProgram, index);
}

// Every slot lives through all rows.
void CasePlan::join() {
  for (Slot& slot : slots_) slot.end_row = static_cast<uint32_t>(rows_.size());
  const auto span = []<typename T>(const std::vector<T>& v) { return Span<T>{v.data(), static_cast<uint32_t>(v.size())}; };
  Program& program = plan_.programs[0];
  program.rows = span(rows_), program.arguments = span(arguments_), program.slots = span(slots_);
  program.bytes = slots_end_;
  plan_.state = span(state_), plan_.carried = span(carried_);
  plan_.state_bytes = state_end_, plan_.carried_bytes = carried_end_;
  plan_.arena_bytes = state_end_ + carried_end_ + slots_end_;
}

uint64_t CasePlan::offset(uint32_t i) const {
  const uint32_t index = ref_index(arguments_[i]);
  switch (ref_region(arguments_[i])) {
    case Region::kState: return state_[index].tensor.offset;
    case Region::kCarried: return state_end_ + carried_[index].offset;
    default: return state_end_ + carried_end_ + slots_[index].tensor.offset;
  }
}

// Copies from State: to outputs that are added to, to slots that an in-place pair shares, and to carried gradients.
void CasePlan::write_before() {
  const auto copy_to = [this](Ref ref, const Tensor& tensor) {
    const Ref source = add_state(tensor, StateKind::kBuffer);
    rows_.insert(rows_.end() - 1, {.op = Op::kCopy, .pass = Pass::kForward, .first_argument = static_cast<uint32_t>(arguments_.size())});
    arguments_.insert(arguments_.end(), {ref, source});
  };
  for (uint32_t t = 0; t < carried_.size(); ++t) copy_to(make_ref(Region::kCarried, t), carried_[t]);
  for (uint32_t i = 0; i < case_.arguments.size(); ++i) {
    const bool is_slot = arguments_[i] != kNoRef && ref_region(arguments_[i]) == Region::kProgram;
    const bool is_read = case_.info().arguments[i].role == Role::kInput || case_.adds(i);
    if (is_slot && is_read) copy_to(arguments_[i], slots_[ref_index(arguments_[i])].tensor);
  }
  join();
}

}  // namespace reprise::test
