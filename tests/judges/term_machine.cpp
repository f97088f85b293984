// Implements TermMachine: runs the rows of a plan on memory that contains terms.
#include "tests/judges/term_machine.h"

namespace reprise::testing {
namespace {

bool is_scalars(const ArgumentInfo& argument) { return argument.storage == Storage::kScalars; }

}  // namespace

TermMachine::TermMachine(const Plan& plan, TermTable& terms, uint32_t rank) : plan_(plan), terms_(terms), rank_(rank) {
  for (uint32_t s = 0; s < plan.state.count; ++s) {
    const StateTensor& state = plan.state[s];
    if (state.owner != kEveryRank && state.owner != rank) continue;
    const ReplayTensor place = state_place(s);
    if (state.kind == StateKind::kNorms) {
      for (uint64_t i = 0; i < place.bytes() / sizeof(double); ++i) {
        write(norm_entry(place, i), sizeof(double), terms_.leaf("old norm " + std::to_string(i), kNormForm));
      }
    } else if (place.store != Store::kArena) {
      store(place).write(place.address, place.bytes(), state_leaf(terms_, state.name, place.form()));
    } else {
      write(place.address, place.bytes(), state_leaf(terms_, state.name, place.form()));
    }
  }
}

void TermMachine::begin(ProgramId id, const std::string& batch, std::vector<RowTerms>* trace) {
  program_ = &plan_.program(id);
  trace_ = trace;
  memory().destroy(plan_.state_bytes + plan_.carried_bytes, UINT64_MAX);
  stores_[static_cast<size_t>(Store::kSpill)].destroy(offloaded_end(), UINT64_MAX);
  under_way_.clear();
  sort_lifetimes();
  row_ = ~0u;
  host_writes(program_->input, batch, input_leaf);
  host_writes(program_->labels, batch, labels_leaf);
  host_writes(program_->document_start, batch, document_start_leaf);
  host_writes(program_->pairs, batch, pairs_leaf);
  host_writes(program_->token_types, batch, token_types_leaf);
  shared_.clear();
}

void TermMachine::run_next_row() { run_row(program_->rows[++row_]); }

void TermMachine::end() {
  row_ = ~0u;
  if (!under_way_.empty()) throw Wrong{"a transfer is never waited for"};
}

Term TermMachine::state(uint32_t index) const {
  const ReplayTensor place = state_place(index);
  return store(place).read(place.address, place.bytes());
}

ReplayTensor TermMachine::state_place(uint32_t index) const {
  const StateTensor& state = plan_.state[index];
  const Store store = state.kind == StateKind::kStreamed    ? Store::kFile
                      : state.kind == StateKind::kOffloaded ? Store::kSpill
                                                            : Store::kArena;
  return {state.tensor.offset, state.tensor.bytes, &state.tensor, store};
}

// Returns the offset in the second level at which the offloaded tensors of State end. These tensors
// keep their content from one program to the next, unlike the blocks after them.
uint64_t TermMachine::offloaded_end() const {
  uint64_t end = 0;
  for (const StateTensor& state : plan_.state) {
    if (state.kind == StateKind::kOffloaded) end = std::max(end, state.tensor.offset + state.tensor.bytes);
  }
  return end;
}

Term TermMachine::norm(uint32_t index, uint64_t entry) const {
  const Tensor& tensor = plan_.state[index].tensor;
  return memory().read(norm_entry({tensor.offset, tensor.bytes, &tensor}, entry), sizeof(double));
}

std::vector<Term> TermMachine::whole_state() const {
  std::vector<Term> all;
  for (uint32_t i = 0; i < plan_.state.count; ++i) {
    if (plan_.state[i].kind != StateKind::kNorms) all.push_back(state(i));
    for (uint64_t e = 0; plan_.state[i].kind == StateKind::kNorms && e < plan_.state[i].tensor.elements(); ++e)
      all.push_back(norm(i, e));
  }
  return all;
}

void TermMachine::write(uint64_t address, uint64_t bytes, Term term) {
  if (bytes > plan_.arena_bytes || address > plan_.arena_bytes - bytes) throw Wrong{"writes past the arena's end"};
  memory().write(address, bytes, term);
}

void TermMachine::sort_lifetimes() {
  births_.assign(program_->rows.count + 1, {});
  deaths_.assign(program_->rows.count + 1, {});
  for (uint32_t d = 0; d < program_->spilled.count; ++d) {
    const Slot& block = program_->spilled[d];
    if (block.first_row <= program_->rows.count) births_[block.first_row].push_back(make_ref(Region::kSpill, d));
    if (block.end_row <= program_->rows.count) deaths_[block.end_row].push_back(make_ref(Region::kSpill, d));
  }
  for (uint32_t s = 0; s < program_->slots.count; ++s) {
    const Slot& slot = program_->slots[s];
    const bool is_host = s == program_->input || s == program_->labels || s == program_->document_start ||
                         s == program_->pairs || s == program_->token_types;
    if (!is_host && slot.first_row <= program_->rows.count) births_[slot.first_row].push_back(s);
    if (slot.end_row <= program_->rows.count) deaths_[slot.end_row].push_back(s);
  }
}

void TermMachine::destroy_slots(const std::vector<Ref>& slots) {
  for (const Ref s : slots) {
    const ReplayTensor place = ref_region(s) == Region::kSpill ? disk_place(ref_index(s)) : slot_place(s);
    store(place).destroy(place.address, place.address + place.reserved);
  }
}

ReplayTensor TermMachine::disk_place(uint32_t block) const {
  const Tensor& tensor = program_->spilled[block].tensor;
  return {tensor.offset, tensor.bytes, &tensor, Store::kSpill};
}

ReplayTensor TermMachine::slot_place(uint32_t s) const {
  const Tensor& tensor = program_->slots[s].tensor;
  return {plan_.state_bytes + plan_.carried_bytes + tensor.offset, tensor.bytes, &tensor};
}

void TermMachine::run_row(const Row& row) {
  const uint32_t kernel = kernel_index(row.op, row.pass);
  if (kernel == kKernelCount) throw Wrong{"no such kernel"};
  kernel_ = &kOps[kernel];
  require_attribute(row);
  if (kernel_->asynchronous()) return transfer(row);
  const bool moves = kernel_->moves;
  if (!moves) destroy_slots(births_[row_]);
  gather(row);
  refuse_overlaps();
  if (trace_ != nullptr) trace_->emplace_back();
  if (is_of_another_rank()) return destroy_slots(deaths_[row_ + 1]);
  if (row.pass == Pass::kUpdate) {
    update_group(row);
  } else if (row.pass == Pass::kReduce) {
    reduce_group(row);
  } else if (row.pass == Pass::kFinish) {
    finish_norm(row);
  } else {
    apply(row);
  }
  if (!moves) destroy_slots(deaths_[row_ + 1]);
}

void TermMachine::transfer(const Row& row) {
  destroy_slots(births_[row_]);
  if (row.first_argument > program_->arguments.count ||
      program_->arguments.count - row.first_argument < kernel_->arity()) {
    throw Wrong{"its arguments lie past the pool"};
  }
  if (row.accumulate != 0) throw Wrong{"adds where it cannot: a transfer"};
  const Ref *refs = program_->arguments.data + row.first_argument;
  if (row.op == Op::kGather) return gather_rows(row, refs);
  if (row.op == Op::kShareInPlace) return share_in_place(row, refs);
  const ReplayTensor to = resolve_any(refs[0]), from = resolve_any(refs[1]);
  if (ref_region(refs[0]) == Region::kState && to.store != Store::kSpill) throw Wrong{"transfers into State"};
  if ((row.op == Op::kLoad) != (from.store == Store::kFile))
    throw Wrong{"loads what is not streamed, or transfers what is"};
  if (row.op == Op::kShare && (to.store != Store::kArena || from.store != Store::kArena))
    throw Wrong{"shares what is not in memory"};
  if (row.op == Op::kLoad && to.store != Store::kArena) throw Wrong{"loads to somewhere else than memory"};
  if (to.form() != from.form()) throw Wrong{"a transfer between different types or shapes"};
  if (trace_ != nullptr) trace_->emplace_back();
  if (row.pass == Pass::kStart) {
    start_transfer(to, from);
    if (row.op == Op::kShare) shared_[to.address] = {under_way_.back().term, root_of(row)};
  } else if (row.op == Op::kShare) {
    end_transfer(to, from, shared_term(row, to));
  } else {
    end_transfer(to, from);
  }
  destroy_slots(deaths_[row_ + 1]);
}

// Runs a row that gathers rows of a streamed table by tokens. The result is a term of table and
// tokens. If an embedding later reads the gathered rows by their numbers, unfold() changes it to an
// embedding that reads the table by the tokens.
void TermMachine::gather_rows(const Row& row, const Ref* refs) {
  using A = GatherStart;
  const ReplayTensor rows = resolve(refs[A::kRows]), places = resolve(refs[A::kPlaces]),
                     table = resolve_any(refs[A::kTable]), tokens = resolve(refs[A::kTokens]);
  if (ref_region(refs[A::kRows]) != Region::kProgram || ref_region(refs[A::kPlaces]) != Region::kProgram)
    throw Wrong{"gathers to somewhere else than the program's memory"};
  if (table.store != Store::kFile) throw Wrong{"gathers what is not streamed"};
  const Application call = {Op::kGather,
                            Pass::kStart,
                            {},
                            {store(table).read(table.address, table.bytes()), read(tokens, "tokens")}};
  const Term gathered = terms_.output(call, A::kRows, rows.form()),
             numbers = terms_.output(call, A::kPlaces, places.form());
  if (trace_ != nullptr) trace_->emplace_back();
  if (row.pass == Pass::kStart) {
    gathered_[gathered] = {call.inputs[0], call.inputs[1], numbers};
    memory().destroy(rows.address, rows.address + rows.reserved);
    write(places.address, places.bytes(), numbers);
    under_way_.push_back({rows, table, gathered});
  } else {
    const auto open = std::find_if(under_way_.begin(), under_way_.end(), [&](const OpenTransfer& t) {
      return t.term == gathered && t.to.address == rows.address;
    });
    if (open == under_way_.end()) throw Wrong{"waits for a gather that nobody started"};
    if (!memory().is_garbage(rows.address, rows.address + rows.bytes()))
      throw Wrong{"something wrote where rows were under way to"};
    write(rows.address, rows.bytes(), gathered);
    under_way_.erase(open);
  }
  destroy_slots(deaths_[row_ + 1]);
}

void TermMachine::start_transfer(const ReplayTensor& to, const ReplayTensor& from) {
  const Term term = store(from).read(from.address, from.bytes());
  if (term == kNoTerm || terms_.form(term) != from.form()) throw Wrong{"transfers garbage"};
  const uint64_t limit = to.store == Store::kSpill ? plan_.spill_bytes : plan_.arena_bytes;
  if (to.bytes() > limit || to.address > limit - to.bytes()) throw Wrong{"transfers past the end"};
  if (to.store == from.store && to.address < from.address + from.reserved && from.address < to.address + to.reserved) {
    throw Wrong{"transfers a value over itself"};
  }
  store(to).destroy(to.address, to.address + to.reserved);
  under_way_.push_back({to, from, term});
  if (trace_ != nullptr) note_read(1, term);
}

uint32_t TermMachine::root_of(const Row& row) const {
  const uint32_t root = plan_.attributes.of<ShareAttribute>()[row.attribute].root;
  if (root >= ranks_.size()) throw Wrong{"shares what a rank has that is none"};
  return root;
}

Term TermMachine::shared_term(const Row& row, const ReplayTensor& to) const {
  const auto own = shared_.find(to.address);
  if (own == shared_.end()) throw Wrong{"waits for what nobody has shared"};
  if (own->second.root != root_of(row)) throw Wrong{"waits for what another rank has"};
  return ranks_[own->second.root]->shared_.at(to.address).term;
}

// Runs a row that shares a tensor in place: after the wait, every rank has the root's term.
void TermMachine::share_in_place(const Row& row, const Ref* refs) {
  const ReplayTensor place = resolve_any(refs[0]);
  if (refs[0] != refs[1] || place.store != Store::kArena)
    throw Wrong{"spreads into another tensor, or what is not in memory"};
  if (trace_ != nullptr) trace_->emplace_back();
  const auto open = std::find_if(under_way_.begin(), under_way_.end(), [&](const OpenTransfer& t) {
    return t.to.address == place.address && t.from.address == place.address;
  });
  if (row.pass == Pass::kStart) {
    if (open != under_way_.end()) throw Wrong{"spreads what is under way"};
    const Term term = read(place, "what is spread");
    note_read(1, term);
    shared_[place.address] = {term, root_of(row)};
    memory().destroy(place.address, place.address + place.reserved);
    under_way_.push_back({place, place, term});
  } else {
    if (open == under_way_.end()) throw Wrong{"waits for a spread that nobody started"};
    if (!memory().is_garbage(place.address, place.address + place.bytes()))
      throw Wrong{"something wrote what is spread"};
    const Term term = shared_term(row, place);
    write(place.address, place.bytes(), term);
    note_written(0, term);
    under_way_.erase(open);
  }
  destroy_slots(deaths_[row_ + 1]);
}

// True if the current row updates a parameter whose moments another rank stores.
bool TermMachine::is_of_another_rank() const {
  if (row_ == ~0u || program_->rows[row_].pass != Pass::kUpdate) return false;
  for (uint32_t i = 0; i < arguments_.size(); ++i) {
    if (!arguments_[i].present || ref_region(refs_[i]) != Region::kState) continue;
    const uint32_t owner = plan_.state[ref_index(refs_[i])].owner;
    if (owner != kEveryRank) return owner != rank_;
  }
  return false;
}

void TermMachine::end_transfer(const ReplayTensor& to, const ReplayTensor& from, std::optional<Term> arrives) {
  const auto same = [](const ReplayTensor& a, const ReplayTensor& b) {
    return a.store == b.store && a.address == b.address && a.bytes() == b.bytes();
  };
  for (auto transfer = under_way_.begin(); transfer != under_way_.end(); ++transfer) {
    if (!same(transfer->to, to) || !same(transfer->from, from)) continue;
    if (store(from).read(from.address, from.bytes()) != transfer->term)
      throw Wrong{"the source of a transfer changed under way"};
    if (!store(to).is_garbage(to.address, to.address + to.bytes()))
      throw Wrong{"something wrote where a transfer was under way to"};
    const Term term = arrives.value_or(transfer->term);
    if (terms_.form(term) != to.form()) throw Wrong{"what comes has another type or shape"};
    store(to).write(to.address, to.bytes(), term);
    note_written(0, term);
    under_way_.erase(transfer);
    return;
  }
  throw Wrong{"waits for a transfer that nobody started"};
}

ReplayTensor TermMachine::resolve_any(Ref ref) const {
  if (ref != kNoRef && ref_region(ref) == Region::kState && ref_index(ref) < plan_.state.count)
    return state_place(ref_index(ref));
  if (ref == kNoRef || ref_region(ref) != Region::kSpill) return resolve(ref);
  const uint32_t index = ref_index(ref);
  if (index >= program_->spilled.count) throw Wrong{"names a disk block that does not exist"};
  if (row_ < program_->spilled[index].first_row || row_ >= program_->spilled[index].end_row) {
    throw Wrong{"touches disk block " + std::to_string(index) + " outside its lifetime"};
  }
  return disk_place(index);
}

void TermMachine::require_attribute(const Row& row) const {
  if (row.attribute >= attribute_count(plan_.attributes, kernel_->attribute)) throw Wrong{"no such attribute"};
}

ReplayTensor TermMachine::resolve(Ref ref) const {
  const uint32_t index = ref_index(ref);
  switch (ref_region(ref)) {
    case Region::kState:
      if (index >= plan_.state.count) break;
      if (plan_.state[index].kind == StateKind::kStreamed) throw Wrong{"a kernel reads the file of streamed weights"};
      if (plan_.state[index].kind == StateKind::kOffloaded) throw Wrong{"a kernel touches memory of the host"};
      return state_place(index);
    case Region::kCarried:
      if (index >= plan_.carried.count) break;
      return {plan_.state_bytes + plan_.carried[index].offset, plan_.carried[index].bytes, &plan_.carried[index]};
    case Region::kProgram:
      if (index >= program_->slots.count) break;
      if (row_ < program_->slots[index].first_row || row_ >= program_->slots[index].end_row) {
        throw Wrong{"touches slot " + std::to_string(index) + " outside its lifetime"};
      }
      return slot_place(index);
    default:
      break;
  }
  throw Wrong{"an argument names a tensor that does not exist"};
}

Term TermMachine::read(const ReplayTensor& place, const char* what) const {
  const Term term = memory().read(place.address, place.bytes());
  if (term == kNoTerm) throw Wrong{std::string("reads garbage as ") + what};
  if (terms_.form(term) != place.form())
    throw Wrong{std::string("reads a value in another type or shape as ") + what};
  return term;
}

void TermMachine::gather(const Row& row) {
  const uint32_t arity = kernel_->arity();
  if (row.first_argument > program_->arguments.count || program_->arguments.count - row.first_argument < arity) {
    throw Wrong{"its arguments lie past the pool"};
  }
  refs_ = program_->arguments.data + row.first_argument;
  arguments_.assign(arity, {});
  bool writes = false;
  for (uint32_t i = 0; i < arity; ++i) {
    Argument& a = arguments_[i];
    a.info = &kernel_->arguments[i];
    a.present = refs_[i] != kNoRef;
    a.adds = (row.accumulate >> i & 1) != 0;
    if (a.adds && (!a.present || !a.info->may_accumulate))
      throw Wrong{std::string("adds where it cannot: ") + a.info->name};
    if (!a.present && !a.info->optional) throw Wrong{std::string("lacks ") + a.info->name};
    if (!a.present) continue;
    a.place = resolve(refs_[i]);
    writes = writes || a.info->role == Role::kOutput || a.info->role == Role::kUpdated;
    if (is_scalars(*a.info)) require_scalars(i);
    if (needs_old(i)) a.old = read(a.place, a.info->name);
  }
  if (!writes) throw Wrong{"writes nothing"};
}

void TermMachine::require_scalars(uint32_t i) const {
  if (refs_[i] != make_ref(Region::kState, 0)) throw Wrong{"its scalars are not state[0]"};
  if (state(0) == kNoTerm) throw Wrong{"the scalars have been overwritten"};
}

bool TermMachine::walks_norms_or_groups() const {
  return kernel_->pass == Pass::kUpdate || kernel_->pass == Pass::kReduce || kernel_->pass == Pass::kFinish;
}

bool TermMachine::needs_old(uint32_t i) const {
  const Argument& a = arguments_[i];
  if (is_scalars(*a.info)) return false;
  if (walks_norms_or_groups()) return false;
  return a.info->role == Role::kInput || a.info->role == Role::kUpdated || a.adds;
}

void TermMachine::refuse_overlaps() const {
  if (kernel_->moves) return;
  for (uint32_t i = 0; i < arguments_.size(); ++i) {
    const Role role = kernel_->arguments[i].role;
    if (!arguments_[i].present || role == Role::kInput) continue;
    for (uint32_t j = 0; j < arguments_.size(); ++j) {
      if (j == i || !arguments_[j].present) continue;
      const bool pair =
          static_cast<int>(i) == kernel_->in_place_output && static_cast<int>(j) == kernel_->in_place_input;
      if ((pair && refs_[i] == refs_[j]) || (kernel_->arguments[j].role != Role::kInput && j < i)) continue;
      const ReplayTensor &a = arguments_[i].place, &b = arguments_[j].place;
      if (a.address < b.address + b.reserved && b.address < a.address + a.reserved) {
        throw Wrong{std::string("writes ") + kernel_->arguments[i].name + " over " + kernel_->arguments[j].name};
      }
    }
  }
}

void TermMachine::unfold(Application& call) {
  if (call.op == Op::kEmbedding && call.pass == Pass::kForward) {
    // Index 0 of `inputs` is argument 1, because argument 0 is y.
    Term &tokens = call.inputs[EmbeddingForward::kTokens - 1], &table = call.inputs[EmbeddingForward::kTable - 1];
    const auto gathered = gathered_.find(table);
    if (gathered == gathered_.end()) return;
    if (tokens != gathered->second.places)
      throw Wrong{"looks rows that were gathered up by something else than their numbers"};
    tokens = gathered->second.tokens, table = gathered->second.table;
    return;
  }
  if (call.op != Op::kNormConv && call.op != Op::kNormRelu && call.op != Op::kNormAddRelu) return;
  // A copy of x's form, because norm() and relu() add terms, which may move the table's memory.
  const Form form = terms_.form(call.inputs[0]);
  if (call.op == Op::kNormConv) {
    const std::vector<Term> in = call.inputs;  // x, w, b or x, dy; then mean, rstd, gamma, beta
    const size_t own = in.size() - 4;
    call.op = Op::kConv;
    call.inputs = {relu(norm({in[0], in[own], in[own + 1], in[own + 2], in[own + 3]}))};
    call.inputs.insert(call.inputs.end(), in.begin() + 1, in.begin() + static_cast<std::ptrdiff_t>(own));
  } else if (call.op == Op::kNormRelu) {
    const std::vector<Term> in = call.inputs;  // x, mean, rstd, gamma, beta, da
    const Term a = relu(norm({in[0], in[1], in[2], in[3], in[4]}));
    const Term dy = terms_.output({Op::kRelu, Pass::kBackward, {}, {a, in[5]}}, 0, form);
    call.op = Op::kBatchNorm;
    call.inputs = {in[0], in[1], in[2], in[3], dy};
  } else if (call.op == Op::kNormAddRelu) {
    const std::vector<Term> in = call.inputs;  // x, b, mean, rstd, gamma, beta
    const Term sum =
        terms_.output({Op::kAdd, Pass::kForward, {}, {norm({in[0], in[2], in[3], in[4], in[5]}), in[1]}}, 0, form);
    call = {Op::kRelu, Pass::kForward, {}, {sum}};
  }
}

Term TermMachine::statistic(const Row& row, const Application& call, uint32_t i) {
  const Form form = arguments_[i].place.form(), written = arguments_[0].place.form();
  const uint64_t count = uint64_t{written.shape[0]} * written.shape[1] * written.shape[2];
  const Term y = terms_.output(call, 0, written);
  const NormAttribute norm = {plan_.attributes.of<WindowAttribute>()[row.attribute].statistics_epsilon, 0, count};
  return terms_.output(
      {Op::kBatchNorm, Pass::kStatistics, attribute_words(kKernelIndex<BatchNormStatistics>, norm), {y}}, i - 1, form);
}

Term TermMachine::norm(const std::vector<Term>& inputs) {
  const Form form = terms_.form(inputs[0]);
  const uint64_t count = uint64_t{form.shape[0]} * form.shape[1] * form.shape[2];
  return terms_.output({Op::kBatchNorm, Pass::kForward,
                        attribute_words(kKernelIndex<BatchNormForward>, NormAttribute{0, 0, count}), inputs},
                       0, form);
}

Term TermMachine::relu(Term x) {
  const Form form = terms_.form(x);
  return terms_.output({Op::kRelu, Pass::kForward, {}, {x}}, 0, form);
}

Application TermMachine::application(const Row& row) const {
  return {row.op, row.pass, attribute_words(plan_.attributes, row.op, row.pass, row.attribute), {}};
}

void TermMachine::append_scalars(Application& call) const {
  const std::vector<Term> read = scalars_read(call.op, call.pass, scalars);
  call.inputs.insert(call.inputs.end(), read.begin(), read.end());
}

void TermMachine::note_read(uint32_t i, Term term) {
  if (trace_ != nullptr) trace_->back().read[i] = term;
}

void TermMachine::note_written(uint32_t i, Term term) {
  if (trace_ != nullptr) trace_->back().written[i] = term;
}

Term TermMachine::written(const Row& row, const Application& call, uint32_t i) {
  const Argument& a = arguments_[i];
  if (kernel_->copies && !a.adds) return terms_.copy(call.inputs[0], a.place.form());
  if (call.op == Op::kConv && call.pass == Pass::kForward && i > 0) return statistic(row, call, i);
  return terms_.output(call, i, a.place.form(), a.old);
}

void TermMachine::apply(const Row& row) {
  Application call = application(row);
  bool updates_scalars = false;
  for (uint32_t i = 0; i < arguments_.size(); ++i) {
    const Argument& a = arguments_[i];
    if (a.old != kNoTerm) note_read(i, a.old);
    if (is_scalars(*a.info)) {
      updates_scalars = updates_scalars || a.info->role == Role::kUpdated;
    } else if (a.info->role == Role::kInput) {
      call.inputs.push_back(a.old);
    }
  }
  append_scalars(call);
  unfold(call);
  if (kernel_->moves) {
    destroy_slots(births_[row_]);
    destroy_slots(deaths_[row_ + 1]);
  }
  destroy_scratch();
  for (uint32_t i = 0; i < arguments_.size(); ++i) {
    const Argument& a = arguments_[i];
    if (!a.present || is_scalars(*a.info) || (a.info->role != Role::kOutput && a.info->role != Role::kUpdated))
      continue;
    const Term result = written(row, call, i);
    write(a.place.address, a.place.bytes(), result);
    note_written(i, result);
  }
  if (updates_scalars) update_scalars(terms_, call, scalars);
}

void TermMachine::destroy_scratch() {
  for (const Argument& a : arguments_) {
    if (a.present && a.info->role == Role::kScratch)
      memory().destroy(a.place.address, a.place.address + a.place.reserved);
  }
}

uint32_t TermMachine::gradients_argument() const {
  uint32_t i = 0;
  while (i < arguments_.size() && !(arguments_[i].info->group && arguments_[i].info->role == Role::kInput)) ++i;
  return i;
}

// Runs the update of a group. The tensors of all arguments must have the same offsets from the
// start of their groups. If an argument is not f32, its offsets differ from those of the gradients,
// so the group must have only one tensor.
void TermMachine::update_group(const Row& row) {
  const uint64_t elements = group_of(plan_.attributes, kernel_->attribute, row.attribute)->elements;
  const uint32_t last = gradients_argument();
  std::vector<uint64_t> offsets;
  for (uint32_t i = 0; i <= last; ++i) {
    if (!arguments_[i].present || !arguments_[i].info->group) continue;
    const ReplayTensor& place = arguments_[i].place;
    const std::vector<uint64_t> own = offsets_in_group(place.address, stored_bytes(place.tensor->dtype, elements));
    if (i == 0) offsets = own;
    if (own != offsets)
      throw Wrong{std::string("the group's tensors do not answer one another: ") + kernel_->arguments[i].name};
  }
  if (offsets.empty() || offsets[0] != 0) throw Wrong{"its group starts in garbage"};
  destroy_scratch();
  for (const uint64_t offset : offsets) update_tensor(row, offset, last);
}

std::vector<uint64_t> TermMachine::offsets_in_group(uint64_t address, uint64_t bytes) const {
  if (bytes > plan_.arena_bytes || address > plan_.arena_bytes - bytes) throw Wrong{"its group ends past the arena"};
  std::vector<uint64_t> offsets = memory().starts(address, address + bytes);
  uint64_t end = address;
  for (uint64_t& start : offsets) {
    if (start >= end + kAlignment) throw Wrong{"its group has a gap"};
    end = memory().end_of(start);
    start -= address;
  }
  if (end > address + bytes) throw Wrong{"its group ends inside a tensor"};
  if (end + kAlignment <= address + bytes) throw Wrong{"its group ends past its last tensor"};
  return offsets;
}

void TermMachine::update_tensor(const Row& row, uint64_t offset, uint32_t last) {
  Application call = application(row);
  std::vector<Form> forms;
  std::vector<uint64_t> ends;
  for (uint32_t i = 0; i <= last; ++i) {
    const Argument& a = arguments_[i];
    const uint64_t first = a.present ? a.place.address + (a.info->group ? offset : 0) : 0;
    ends.push_back(!a.present ? 0 : a.info->group ? memory().end_of(first) : first + a.place.bytes());
    const Term term = !a.present      ? kNoTerm
                      : a.info->group ? memory().read(first, ends[i] - first)
                                      : read(a.place, a.info->name);
    if (a.present && term == kNoTerm) throw Wrong{"a tensor of its group is garbage"};
    forms.push_back(terms_.form(term));
    const bool answers = !a.present || !a.info->group || forms[i].shape == forms[0].shape;
    if (!answers) throw Wrong{"a tensor of its group has another length than its parameter"};
    call.inputs.push_back(term);
    if (offset == 0) note_read(i, term);
  }
  append_scalars(call);
  for (uint32_t i = 0; i < last; ++i) {
    const Argument& a = arguments_[i];
    if (!a.present) continue;
    const uint64_t first = a.place.address + (a.info->group ? offset : 0);
    const Term result = terms_.output(call, i, forms[i]);
    write(first, ends[i] - first, result);
    if (offset == 0) note_written(i, result);
  }
}

void TermMachine::reduce_group(const Row& row) {
  const GroupAttribute& group = plan_.attributes.of<GroupAttribute>()[row.attribute];
  const ReplayTensor norms = arguments_[0].place;
  for (uint32_t t = 0; t < group.tensors; ++t) {
    Application call = application(row);
    call.inputs = {read(resolve(refs_[1] + t), "a gradient")};
    const uint64_t entry = uint64_t{group.first_norm} + t;
    if ((entry + 1) * sizeof(double) > norms.bytes()) throw Wrong{"writes past the norms"};
    const Term result = terms_.output(call, 0, kNormForm);
    write(norm_entry(norms, entry), sizeof(double), result);
    if (t == 0) note_read(1, call.inputs[0]);
    if (t == 0) note_written(0, result);
  }
}

void TermMachine::finish_norm(const Row& row) {
  Application call = application(row);
  const ReplayTensor norms = arguments_[1].place;
  for (uint64_t i = 0; i < norms.bytes() / sizeof(double); ++i) {
    call.inputs.push_back(memory().read(norm_entry(norms, i), sizeof(double)));
    if (call.inputs.back() == kNoTerm) throw Wrong{"reads garbage as a norm"};
  }
  update_scalars(terms_, call, scalars);
}

}  // namespace reprise::testing
