// See case_plan.h.
//
// Arena = [ State: scalars, inputs, updated tensors | Carried: gradients of a group
//         | program: outputs, labels, scratch ]
#include "tests/ops/case_plan.h"

#include <cstdlib>
#include <type_traits>
#include <utility>

namespace reprise::test {
namespace {

// Places a tensor at the end of a region, after a guard.
void append(Tensor& tensor, uint64_t& end) {
  tensor.offset = end + CasePlan::kGuard;
  end = tensor.offset + tensor.bytes;
}

StateKind kind_of(const KernelCase& c, uint32_t i) {
  if (c.pass == Pass::kUpdate) return i == 0 ? StateKind::kParameter : StateKind::kOptimizer;
  return c.op == Op::kGradNorm ? StateKind::kNorms : StateKind::kBuffer;
}

// True if argument `i` is a group of gradients, which the row reduces or applies.
bool is_gradients(const KernelCase& c, uint32_t i) {
  return c.info().arguments[i].group && c.info().arguments[i].role == Role::kInput;
}
// True if the row is part of the end of a step: it reduces, finishes or updates.
bool ends_step(const KernelCase& c) {
  return c.pass == Pass::kReduce || c.pass == Pass::kFinish || c.pass == Pass::kUpdate;
}

ProgramId program_of(const KernelCase& c) {
  if (c.pass == Pass::kDecode) return ProgramId::kGenerate;
  return ends_step(c) ? ProgramId::kUpdate : ProgramId::kMicroFirst;
}

template <typename T>
Span<T> span(const std::vector<T>& v) {
  return {v.data(), static_cast<uint32_t>(v.size())};
}

// Returns the references of a call's arguments in the order of kOps. Used for rows without scratch.
template <typename K>
std::vector<Ref> refs_of(std::initializer_list<NamedArgument<K, Ref>> arguments) {
  std::vector<PlacedArgument<Ref>> placed;
  for (const auto& [argument, ref] : arguments) placed.push_back({argument, ref});
  std::vector<Ref> refs;
  for (const std::optional<Ref>& ref : in_order(K::kInfo, placed)) refs.push_back(ref.value_or(kNoRef));
  return refs;
}

}  // namespace

CasePlan::CasePlan(const Backend& backend, const KernelCase& c, bool in_place)
    : case_(c), case_program_(program_of(c)), rules_(*backend.rules) {
  const KernelInfo& info = c.info();
  plan_.name = "case";
  plan_.backend = backend.rules->name;
  plan_.attributes = pools_of(c.attribute);
  const Tensor* tensors[kMaxArguments] = {};
  uint32_t present = 0;
  for (uint32_t i = 0; i < c.arguments.size(); ++i) {
    if (c.has(i)) tensors[i] = &c.tensor(i), present |= 1u << i;
  }
  const ShapedCall call = {c.op, c.pass, tensors, present, &plan_.attributes, 0};
  plan_.worker_stack_bytes = backend.rules->stack_bytes(call);

  add_state(*scalars_tensor(), StateKind::kScalars);
  if (c.pass == Pass::kUpdate) add_state(*shaped({1}, DType::kF64), StateKind::kNorms);
  const auto shared_input = static_cast<uint32_t>(info.in_place_input);
  for (uint32_t i = 0; i < c.arguments.size(); ++i) {
    const bool shares = in_place && i == shared_input;
    refs_.push_back(shares ? refs_[static_cast<uint32_t>(info.in_place_output)] : c.has(i) ? place(i) : kNoRef);
  }
  if (info.arity() > c.arguments.size()) {
    scratch_bytes_ = rules_.scratch_bytes(call);
    refs_.push_back(add_scratch(scratch_bytes_));
  }
  add_row(case_program_, c.op, c.pass, refs_);
  rows_of(case_program_).back().accumulate = static_cast<uint16_t>(c.accumulate);
  join();
}

Ref CasePlan::place(uint32_t i) {
  const ArgumentInfo& argument = case_.info().arguments[i];
  if (is_scalars(case_, i)) return make_ref(Region::kState, kScalarsIndex);
  if (is_gradients(case_, i)) return place_group(i);
  if (argument.host == HostSlot::kLabels) return labels_ = add_slot(case_.tensor(i), SlotKind::kLabel);
  if (argument.host == HostSlot::kDocumentStart) return document_start_ = add_slot(case_.tensor(i), SlotKind::kInput);
  if (argument.host == HostSlot::kPairs) return pairs_ = add_slot(case_.tensor(i), SlotKind::kInput);
  if (case_.pass == Pass::kDecode && argument.role == Role::kUpdated)
    return add_slot(case_.tensor(i), SlotKind::kCache);
  if (argument.role == Role::kOutput) return add_slot(case_.tensor(i), SlotKind::kTransient);
  return add_state(case_.tensor(i), kind_of(case_, i));
}

// Places the tensors of a group next to each other, without guards between them.
Ref CasePlan::place_group(uint32_t i) {
  set_carried(case_.group.empty() ? std::vector<Tensor>{case_.tensor(i)} : case_.group);
  return make_ref(Region::kCarried, 0);
}
void CasePlan::set_carried(std::vector<Tensor> tensors) {
  carried_ = std::move(tensors);
  for (Tensor& tensor : carried_) tensor.offset += kGuard;
  carried_end_ = carried_.back().offset + carried_.back().bytes;
}

Ref CasePlan::add_state(Tensor tensor, StateKind kind) {
  append(tensor, state_end_);
  state_.push_back({.tensor = tensor, .kind = kind});
  return make_ref(Region::kState, static_cast<uint32_t>(state_.size() - 1));
}

Ref CasePlan::add_slot(Tensor tensor, SlotKind use) {
  append(tensor, slots_end_);
  const auto index = static_cast<uint32_t>(slots_.size());
  slots_.push_back({.tensor = tensor, .below = index == 0 ? kNoSlot : index - 1, .use = use});
  return make_ref(Region::kProgram, index);
}

// Adds a scratch slot of at least `bytes`, as [bytes / kAlignment, kAlignment]. Two dimensions are
// needed because one dimension is at most 2^32 - 1. Returns kNoRef if `bytes` is 0.
Ref CasePlan::add_scratch(uint64_t bytes) {
  if (bytes == 0) return kNoRef;
  return add_slot(*shaped({static_cast<uint32_t>(align_up(bytes) / kAlignment), uint32_t{kAlignment}}, DType::kU8),
                  SlotKind::kScratch);
}

void CasePlan::add_row(ProgramId program, Op op, Pass pass, const std::vector<Ref>& refs) {
  std::vector<Ref>& arguments = arguments_[static_cast<uint32_t>(program)];
  rows_of(program).push_back({.op = op, .pass = pass, .first_argument = static_cast<uint32_t>(arguments.size())});
  arguments.insert(arguments.end(), refs.begin(), refs.end());
}

// Joins the tables into the plan. Every slot is live in all rows.
void CasePlan::join() {
  for (uint32_t p = 0; p < kProgramCount; ++p) {
    plan_.programs[p].rows = span(rows_[p]), plan_.programs[p].arguments = span(arguments_[p]);
  }
  for (Slot& slot : slots_) slot.end_row = static_cast<uint32_t>(rows_of(case_program_).size());
  Program& program = plan_.programs[static_cast<uint32_t>(case_program_)];
  program.slots = span(slots_);
  program.labels = labels_;
  program.document_start = document_start_;
  program.pairs = pairs_;
  program.bytes = slots_end_;
  plan_.state = span(state_), plan_.carried = span(carried_);
  plan_.state_bytes = state_end_, plan_.carried_bytes = carried_end_;
  plan_.arena_bytes = state_end_ + carried_end_ + slots_end_;
}

const Row& CasePlan::row() const {
  for (const Row& row : program().rows) {
    if (row.op == case_.op && row.pass == case_.pass) return row;
  }
  std::abort();  // never reached, because the constructor added the row
}

uint64_t CasePlan::offset(uint32_t i) const {
  const uint32_t index = ref_index(refs_[i]);
  switch (ref_region(refs_[i])) {
    case Region::kState: return state_[index].tensor.offset;
    case Region::kCarried: return state_end_ + carried_[index].offset;
    default: return state_end_ + carried_end_ + slots_[index].tensor.offset;
  }
}

void CasePlan::complete() {
  if (case_program_ == ProgramId::kUpdate) {
    complete_step();
  } else {
    write_before();
  }
  join();
}

void CasePlan::add_copy(Ref ref, const Tensor& tensor) {
  using A = CopyForward;
  add_row(ProgramId::kMicroFirst, Op::kCopy, Pass::kForward,
          refs_of<A>({{A::kY, ref}, {A::kX, add_state(tensor, StateKind::kBuffer)}}));
}

// Adds a row before the case's row for each slot that the case's row reads: inputs, and outputs to
// which it adds. The new row writes the slot. Labels, document starts and pairs need no row,
// because the host writes them.
void CasePlan::write_before() {
  const Row own = rows_of(case_program_).back();
  rows_of(case_program_).pop_back();
  for (uint32_t i = 0; i < case_.arguments.size(); ++i) {
    const bool is_slot = refs_[i] != kNoRef && ref_region(refs_[i]) == Region::kProgram && refs_[i] != labels_ &&
                         refs_[i] != document_start_ && refs_[i] != pairs_;
    const bool is_read = case_.info().arguments[i].role == Role::kInput || case_.adds(i);
    if (is_slot && is_read) add_copy(refs_[i], slots_[ref_index(refs_[i])].tensor);
  }
  rows_of(case_program_).push_back(own);
}

// Adds those of the three rows reduce, finish and update that are missing. The case's row is one of
// the three. Parameters are contiguous, in the order of their gradients.
void CasePlan::complete_step() {
  const auto trained = static_cast<uint32_t>(state_[kNormsIndex].tensor.elements());
  if (carried_.empty()) set_carried(side_by_side(trained));
  const Tensor& last = carried_.back();
  group_ = {trained, 0, (last.offset - carried_[0].offset) / sizeof(float) + last.elements()};
  update_.group = group_;
  update_.epsilon = 1e-8f;
  const bool has_parameters = case_.pass == Pass::kUpdate;
  const uint64_t first = state_end_ + kGuard;
  for (uint32_t t = 0; !has_parameters && t < trained; ++t) {
    Tensor tensor = carried_[t];
    tensor.offset = first + (tensor.offset - carried_[0].offset);
    state_end_ = tensor.offset + tensor.bytes;
    state_.push_back({.tensor = tensor, .kind = StateKind::kParameter});
  }
  for (uint32_t t = 0; t < trained; ++t) add_copy(make_ref(Region::kCarried, t), carried_[t]);

  const Row own = rows_of(ProgramId::kUpdate).back();
  rows_of(ProgramId::kUpdate).pop_back();
  const Ref scalars = make_ref(Region::kState, kScalarsIndex), norms = make_ref(Region::kState, kNormsIndex);
  const Ref parameters = make_ref(Region::kState, kFirstTrained), gradients = make_ref(Region::kCarried, 0);
  const auto add = [&]<typename K>(K, const auto& attribute, std::initializer_list<NamedArgument<K, Ref>> arguments) {
    if (case_.pass == K::kInfo.pass) return rows_of(ProgramId::kUpdate).push_back(own);
    set_pool(plan_.attributes, attribute);
    std::vector<Ref> refs = refs_of<K>(arguments);
    if (K::kInfo.arity() > refs.size()) {  // the last argument is scratch
      const ShapedCall call = {K::kInfo.op, K::kInfo.pass, nullptr, 0, &plan_.attributes, 0};
      refs.push_back(add_scratch(rules_.scratch_bytes(call)));
    }
    add_row(ProgramId::kUpdate, K::kInfo.op, K::kInfo.pass, refs);
  };
  using Reduce = GradNormReduce;
  using Finish = GradNormFinish;
  using Update = SgdUpdate;
  add(Reduce(), group_, {{Reduce::kNorms, norms}, {Reduce::kGradients, gradients}});
  add(Finish(), clip_, {{Finish::kScalars, scalars}, {Finish::kNorms, norms}});
  add(Update(), update_,
      {{Update::kParameters, parameters}, {Update::kGradients, gradients}, {Update::kScalars, scalars}});
}

// Returns `count` adjacent tensors of one element each.
std::vector<Tensor> CasePlan::side_by_side(uint32_t count) {
  std::vector<Tensor> tensors(count, *shaped({1}));
  for (uint32_t t = 0; t < count; ++t) tensors[t].offset = t * tensors[t].bytes;
  return tensors;
}

}  // namespace reprise::test
