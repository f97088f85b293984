// Converts values to slots and calls to rows. A slot lives from the first row that touches it to
// the last; lifetimes and `below` hints are found at the end.
#include "tools/plan/lowering/program_builder.h"

#include <algorithm>

#include "lib/assert.h"

namespace reprise {

namespace {

bool is_gradient(const Value& value) {
  return value.kind == ValueKind::kGradient || value.kind == ValueKind::kSkipGradient;
}

}  // namespace

void ProgramBuilder::stage_inputs(uint64_t input_offset) {
  const auto stage = [this](ValueId v, uint64_t offset, SlotKind use) {
    return current_[v] = new_slot(in_.graph.tensor(v), in_.graph.values[v].name, offset, use);
  };
  program_.input = stage(in_.graph.input, header_.bytes + input_offset, SlotKind::kInput);
  program_.labels = stage(in_.graph.labels, 0, SlotKind::kLabel);
  if (in_.graph.document_start != kNoValue)
    program_.document_start = stage(in_.graph.document_start, header_.labels_bytes, SlotKind::kInput);
  if (in_.graph.pairs != kNoValue) program_.pairs = stage(in_.graph.pairs, header_.pairs_offset, SlotKind::kInput);
  if (in_.graph.token_types != kNoValue)
    program_.token_types = stage(in_.graph.token_types, header_.types_offset, SlotKind::kInput);
}

void ProgramBuilder::stage_cache(ValueId v, uint64_t offset) {
  current_[v] = new_slot(in_.graph.tensor(v), in_.graph.values[v].name, header_.bytes + offset, SlotKind::kCache);
}

void ProgramBuilder::emit(const ArrangedCalls& arranged, uint64_t scratch_offset, const SlotPlaces& places,
                          uint32_t link, bool first_time) {
  REPRISE_ASSERT(arranged.kernel_scratch.size() == arranged.calls.size(),
                 "an arrangement states the scratch of each of its calls");
  origin_.first_time = first_time;
  places_ = &places;
  scratch_offset_ = scratch_offset;
  created_.clear();
  buffer_slot_.clear();
  buffer_of_.clear();
  for (size_t b = 0; b < arranged.buffers.size(); ++b) {
    for (const ValueId v : arranged.buffers[b].values) buffer_of_[v] = b;
  }
  for (size_t c = 0; c < arranged.calls.size(); ++c) {
    if (first_time) {
      emit_call(arranged, c, arranged.calls[c], link);
    } else if (const auto again = repeated(arranged.calls[c])) {
      emit_call(arranged, c, *again, link);
    }
  }
}

void ProgramBuilder::add_row(const Row& row) {
  program_.rows.push_back(row);
  program_.origins.push_back(origin_);
}

void ProgramBuilder::move(ValueId v, uint64_t to, uint32_t link) {
  const uint32_t from = current_.at(v);
  Row row = {};
  row.op = Op::kMove;
  row.pass = Pass::kForward;
  row.link = link;
  row.first_argument = static_cast<uint32_t>(program_.arguments.size());
  current_[v] = new_slot(in_.graph.tensor(v), in_.graph.values[v].name, header_.bytes + to, SlotKind::kGradient);
  program_.arguments.insert(program_.arguments.end(),
                            {make_ref(Region::kProgram, current_[v]), make_ref(Region::kProgram, from)});
  add_row(row);
}

void ProgramBuilder::add_transfer(Op op, Pass pass, std::initializer_list<Ref> arguments, uint32_t link) {
  Row row = {};
  row.op = op;
  row.pass = pass;
  row.queue = 1;
  row.link = link;
  row.first_argument = static_cast<uint32_t>(program_.arguments.size());
  program_.arguments.insert(program_.arguments.end(), arguments);
  add_row(row);
}

void ProgramBuilder::start_write(ValueId v, uint64_t disk, uint32_t link) {
  Slot block;
  block.tensor = in_.graph.tensor(v);
  block.tensor.offset = disk;
  block.use = SlotKind::kBoundary;
  on_disk_[v] = make_ref(Region::kSpill, static_cast<uint32_t>(program_.spilled.size()));
  program_.spilled.push_back(block);
  program_.spilled_names.push_back(in_.graph.values[v].name);
  add_transfer(Op::kTransfer, Pass::kStart, {on_disk_[v], make_ref(Region::kProgram, current_.at(v))}, link);
}

void ProgramBuilder::end_write(ValueId v, uint32_t link) {
  add_transfer(Op::kTransfer, Pass::kWait, {on_disk_.at(v), make_ref(Region::kProgram, current_.at(v))}, link);
}

void ProgramBuilder::read_back(ValueId v, uint64_t to, uint32_t link) {
  current_[v] = new_slot(in_.graph.tensor(v), in_.graph.values[v].name, header_.bytes + to, SlotKind::kBoundary);
  for (const Pass pass : {Pass::kStart, Pass::kWait})
    add_transfer(Op::kTransfer, pass, {make_ref(Region::kProgram, current_[v]), on_disk_.at(v)}, link);
}

// Emits the row of `call`, which is call c of `arranged`, or what repeated() makes of it.
void ProgramBuilder::emit_call(const ArrangedCalls& arranged, size_t c, const Call& call, uint32_t link) {
  const KernelInfo& kernel = kernel_info(call.op, call.pass);
  origin_.of_gradient = std::any_of(call.arguments.begin(), call.arguments.end(), [&](const ValueId& v) {
    return kernel.arguments[&v - call.arguments.data()].role == Role::kOutput && v != kNoValue &&
           is_gradient(in_.graph.values[v]);
  });
  const bool adds = id_ != ProgramId::kMicroFirst;  // true: adds to the gradients of earlier micro-batches in Carried
  Row row = {};
  row.op = call.op;
  row.pass = call.pass;
  row.attribute = call.attribute;
  row.link = link;
  row.accumulate = call.accumulate;
  row.first_argument = static_cast<uint32_t>(program_.arguments.size());
  for (uint32_t a = 0; a < call.arguments.size(); ++a) {
    const ValueId v = call.arguments[a];
    const bool writes = kernel.arguments[a].role == Role::kOutput;
    program_.arguments.push_back(reference(arranged, v, writes));
    if (writes && adds && in_.state.carried_index.count(v) != 0)
      row.accumulate = static_cast<uint16_t>(row.accumulate | 1u << a);
  }
  if (kernel.arguments[kernel.arity() - 1].role == Role::kScratch) {
    const int scratch = arranged.kernel_scratch[c];
    program_.arguments.push_back(scratch < 0 ? kNoRef
                                             : buffer_reference(arranged, static_cast<size_t>(scratch), kNoValue));
  }
  add_row(row);
}

Ref ProgramBuilder::reference(const ArrangedCalls& arranged, ValueId v, bool writes) {
  if (v == kNoValue) return kNoRef;
  if (const auto found = in_.state.state_index.find(v); found != in_.state.state_index.end()) {
    return make_ref(Region::kState, found->second);
  }
  if (const auto found = in_.state.carried_index.find(v); found != in_.state.carried_index.end()) {
    return make_ref(Region::kCarried, found->second);
  }
  if (const auto found = buffer_of_.find(v); found != buffer_of_.end())
    return buffer_reference(arranged, found->second, v);
  return make_ref(Region::kProgram, writes ? placed_slot(v) : current_.at(v));
}

// Returns the slot of v in buffer b. Successive values of the buffer share a slot as long as they
// have one shape. A value of another shape has its own slot in the same place.
Ref ProgramBuilder::buffer_reference(const ArrangedCalls& arranged, size_t b, ValueId v) {
  const ArrangedCalls::Buffer& buffer = arranged.buffers[b];
  const ValueId alike = v == kNoValue ? kNoValue : first_alike(buffer, v);
  const auto [slot, is_new] = buffer_slot_.try_emplace({b, alike}, kNoSlot);
  if (is_new) slot->second = new_buffer_slot(buffer, v);
  return make_ref(Region::kProgram, slot->second);
}

// Returns the first of the consecutive values of the buffer that end with v and all have v's shape.
ValueId ProgramBuilder::first_alike(const ArrangedCalls::Buffer& buffer, ValueId v) const {
  auto first = std::find(buffer.values.begin(), buffer.values.end(), v);
  while (first != buffer.values.begin() && same_dimensions(in_.graph.tensor(first[-1]), in_.graph.tensor(v))) --first;
  return *first;
}

// Returns the slot of v in the buffer, which is new unless v is in the slot of a placed value or
// host. A buffer without bytes of its own is stored in the bytes of its last value.
uint32_t ProgramBuilder::new_buffer_slot(const ArrangedCalls::Buffer& buffer, ValueId v) {
  if (buffer.bytes == 0) {
    const uint32_t placed = placed_slot(buffer.values.back());
    if (first_alike(buffer, v) == first_alike(buffer, buffer.values.back())) return placed;
    return new_slot(in_.graph.tensor(v), in_.graph.values[v].name, program_.slots[placed].tensor.offset,
                    program_.slots[placed].use);
  }
  if (v != kNoValue && buffer.host != kNoValue && first_alike(buffer, v) == buffer.host)
    return current_.at(buffer.host);
  const uint64_t offset = buffer.host == kNoValue ? header_.bytes + scratch_offset_ + buffer.offset
                                                  : program_.slots[current_.at(buffer.host)].tensor.offset;
  if (v != kNoValue) {
    const Value& value = in_.graph.values[v];
    return new_slot(value.tensor, value.name, offset, is_gradient(value) ? SlotKind::kGradient : SlotKind::kTransient);
  }
  Tensor bytes;
  bytes.dtype = DType::kU8;
  bytes.rank = 2;  // a single dimension is at most 2^32 - 1
  bytes.shape[0] = static_cast<uint32_t>(buffer.bytes / kAlignment);
  bytes.shape[1] = kAlignment;
  bytes.bytes = buffer.bytes;
  return new_slot(bytes, "scratch", offset, SlotKind::kScratch);
}

// Returns the slot of an output outside the scratch block. If the action gives the value a new
// place, the first call of this function in the action makes a slot there.
uint32_t ProgramBuilder::placed_slot(ValueId v) {
  const Value& value = in_.graph.values[v];
  if (const auto place = places_->find(v); place != places_->end()) {
    if (created_.insert(v).second)
      current_[v] = new_slot(value.tensor, value.name, header_.bytes + place->second.offset, place->second.use);
  } else if (lives_in_header(value) && current_.count(v) == 0) {
    const SlotKind use = value.kind == ValueKind::kSmall ? SlotKind::kSmall
                        : is_gradient(value)            ? SlotKind::kGradient
                                                        : SlotKind::kBoundary;
    current_[v] = new_slot(value.tensor, value.name, header_.offsets.at(v), use);
  }
  return current_.at(v);
}

uint32_t ProgramBuilder::new_slot(const Tensor& tensor, const std::string& name, uint64_t offset, SlotKind use) {
  REPRISE_ASSERT(offset % kAlignment == 0 && tensor.bytes % kAlignment == 0, "a slot is aligned to 256 bytes");
  Slot slot;
  slot.tensor = tensor;
  slot.tensor.offset = offset;
  slot.use = use;
  program_.slots.push_back(slot);
  program_.slot_names.push_back(name);
  return static_cast<uint32_t>(program_.slots.size() - 1);
}

OwnedProgram ProgramBuilder::finish() {
  drop_idle_rows();
  if (runs_micro_batch(id_)) share_gradients(program_, id_, in_.graph, in_.state, in_.sharing, header_.sharing_offset);
  if (id_ == ProgramId::kUpdate) share_parameters(program_, in_.graph, in_.state);
  if (!in_.window.streamed.empty()) load_streamed_weights();
  bring_offloaded();
  find_lifetimes();
  sort_slots(Region::kProgram, program_.slots, program_.slot_names);
  sort_slots(Region::kSpill, program_.spilled, program_.spilled_names);
  find_neighbours();
  for (const Slot& slot : program_.slots)
    program_.bytes = std::max(program_.bytes, slot.tensor.offset + slot.tensor.bytes);
  return std::move(program_);
}

// Returns the slot or disk block of a reference; null for a tensor that exists outside the program.
Slot* ProgramBuilder::slot_of(Ref ref) {
  if (ref == kNoRef) return nullptr;
  if (ref_region(ref) == Region::kProgram) return &program_.slots[ref_index(ref)];
  return ref_region(ref) == Region::kSpill ? &program_.spilled[ref_index(ref)] : nullptr;
}

// Drops rows whose outputs are overwritten or dead before they are read. Examples: an output that
// only a later link's forward would read; the forward of a frozen trunk; gradients of frozen
// parameters; copies of these on disk. Links list such calls because their lists serve every
// schedule.
void ProgramBuilder::drop_idle_rows() {
  std::set<Ref> wanted;  // at first the slots whose contents are used after the run
  for (uint32_t s = 0; s < program_.slots.size(); ++s) {
    if (program_.slots[s].use == SlotKind::kCache || s == program_.output) wanted.insert(s);
  }
  std::vector<Row> rows;
  std::vector<RowOrigin> origins;
  for (size_t r = program_.rows.size(); r-- > 0;) {
    const Row& row = program_.rows[r];
    const KernelInfo& kernel = kernel_info(row.op, row.pass);
    const Ref* refs = &program_.arguments[row.first_argument];
    bool works = false;
    for (uint32_t a = 0; a < kernel.arity(); ++a) {
      const bool writes = kernel.arguments[a].role == Role::kOutput || kernel.arguments[a].role == Role::kUpdated;
      if (writes && refs[a] != kNoRef) works = works || slot_of(refs[a]) == nullptr || wanted.count(refs[a]) != 0;
    }
    if (!works) continue;
    const auto overwrites = [&](uint32_t a) {
      return kernel.arguments[a].role == Role::kOutput && (row.accumulate >> a & 1u) == 0;
    };
    for (uint32_t a = 0; a < kernel.arity(); ++a) {
      if (overwrites(a)) wanted.erase(refs[a]);
    }
    for (uint32_t a = 0; a < kernel.arity(); ++a) {
      if (!overwrites(a) && kernel.arguments[a].role != Role::kScratch && slot_of(refs[a]) != nullptr)
        wanted.insert(refs[a]);
    }
    rows.push_back(row);
    origins.push_back(program_.origins[r]);
  }
  program_.rows.assign(rows.rbegin(), rows.rend());
  program_.origins.assign(origins.rbegin(), origins.rend());
}

bool ProgramBuilder::is_streamed(Ref ref) const {
  return ref != kNoRef && ref_region(ref) == Region::kState && in_.window.streamed.count(ref_index(ref)) != 0;
}

bool ProgramBuilder::gathers(const Row& row, uint32_t argument) const {
  if (row.op != Op::kEmbedding || row.pass != Pass::kForward || argument != EmbeddingForward::kTable) return false;
  return in_.window.gathered.count(ref_index(program_.arguments[row.first_argument + argument])) != 0;
}

ValueId ProgramBuilder::value_at(uint32_t place) const {
  const auto found = std::find_if(in_.state.state_index.begin(), in_.state.state_index.end(),
                                  [place](const auto& entry) { return entry.second == place; });
  return found->first;
}

// Returns the tensor that gathered rows of the table at index `place` of State are loaded into. It
// has one row for each token of the program's input.
Tensor ProgramBuilder::gathered_rows(uint32_t place) const {
  Tensor rows = in_.graph.tensor(value_at(place));
  rows.shape[0] = static_cast<uint32_t>(in_.graph.tensor(in_.graph.input).elements());
  rows.bytes = align_up(rows.used_bytes());
  return rows;
}

uint64_t ProgramBuilder::window_bytes_of(const Wanted& wanted) const {
  const uint64_t places = align_up(in_.graph.tensor(in_.graph.input).used_bytes());
  const uint64_t bytes =
      wanted.gathered ? gathered_rows(wanted.place).bytes + places : in_.graph.tensor(value_at(wanted.place)).bytes;
  return align_to(bytes, kStreamAlignment);
}

// Returns new slots for one load, because a slot must be loaded only once.
ProgramBuilder::LoadedSlots ProgramBuilder::new_loaded_slots(const Wanted& wanted, uint64_t offset) {
  const Value& value = in_.graph.values[value_at(wanted.place)];
  const uint64_t at = header_.window_offset + offset;
  if (!wanted.gathered) {
    Tensor whole = value.tensor;
    whole.bytes = align_to(whole.bytes, kStreamAlignment);
    return {.weight = new_slot(whole, value.name, at, SlotKind::kWeight)};
  }
  const Tensor rows = gathered_rows(wanted.place);
  return {.weight = new_slot(rows, value.name, at, SlotKind::kWeight),
          .places = new_slot(in_.graph.tensor(in_.graph.input), "places of " + value.name, at + rows.bytes,
                             SlotKind::kWeight)};
}

void ProgramBuilder::add_load(const Wanted& wanted, const LoadedSlots& slots, Pass pass, uint32_t link) {
  const Ref from = make_ref(Region::kState, wanted.place);
  if (!wanted.gathered) return add_transfer(Op::kLoad, pass, {slots.weight, from}, link);
  add_transfer(Op::kGather, pass, {slots.weight, slots.places, from, current_.at(in_.graph.input)}, link);
}

template <typename Visit>
void ProgramBuilder::for_each_streamed(const Row& row, const Visit& visit) const {
  for (uint32_t a = 0; a < kernel_info(row.op, row.pass).arity(); ++a) {
    const Ref ref = program_.arguments[row.first_argument + a];
    if (is_streamed(ref)) visit(a, Wanted{ref_index(ref), gathers(row, a)});
  }
}

// Returns the loads that the rows need. Appends the distinct weights to `wanted`;
// WeightLoad::weight is an index in it.
std::vector<WeightLoad> ProgramBuilder::plan_loads(std::vector<Wanted>& wanted) const {
  std::map<Wanted, uint32_t> index;
  std::vector<WeightUse> uses;
  std::vector<uint64_t> bytes;
  for (uint32_t r = 0; r < program_.rows.size(); ++r) {
    for_each_streamed(program_.rows[r], [&](uint32_t, const Wanted& w) {
      const auto [found, is_new] = index.try_emplace(w, static_cast<uint32_t>(wanted.size()));
      if (is_new) wanted.push_back(w), bytes.push_back(window_bytes_of(w));
      uses.push_back({r, found->second});
    });
  }
  const std::optional<std::vector<WeightLoad>> loads = fill_window(uses, bytes, in_.window.bytes);
  if (!loads) throw WindowTooSmall("the window of streamed weights is too small for a row");
  return *loads;
}

// Inserts rows that start the loads and wait for them, and replaces streamed weights by slots in
// the rows' arguments.
void ProgramBuilder::load_streamed_weights() {
  std::vector<Wanted> wanted;
  const std::vector<WeightLoad> loads = plan_loads(wanted);
  const std::vector<Row> rows = std::move(program_.rows);
  const std::vector<RowOrigin> origins = std::move(program_.origins);
  program_.rows.clear(), program_.origins.clear();
  std::vector<LoadedSlots> slots;  // parallel to the loads that are started
  std::map<Wanted, LoadedSlots> now;
  size_t waited = 0;
  for (uint32_t r = 0; r < rows.size(); ++r) {
    origin_ = origins[r];
    while (slots.size() < loads.size() && loads[slots.size()].start_row <= r) {
      const WeightLoad& load = loads[slots.size()];
      slots.push_back(new_loaded_slots(wanted[load.weight], load.offset));
      add_load(wanted[load.weight], slots.back(), Pass::kStart, rows[r].link);
    }
    for (; waited < loads.size() && loads[waited].first_row <= r; ++waited) {
      const Wanted& w = wanted[loads[waited].weight];
      add_load(w, slots[waited], Pass::kWait, rows[r].link);
      now[w] = slots[waited];
    }
    for_each_streamed(rows[r], [&](uint32_t a, const Wanted& w) {
      program_.arguments[rows[r].first_argument + a] = now.at(w).weight;
      if (w.gathered) program_.arguments[rows[r].first_argument + EmbeddingForward::kTokens] = now.at(w).places;
    });
    add_row(rows[r]);
  }
}

// Inserts rows that copy offloaded moments to memory before the row that updates them, and back
// after it. For all rows these slots use the same bytes, after all other slots. No moment is copied
// in advance, because copies wait for each other anyway, and an update is short compared with its
// copies.
//
//   copies    m in  v in             m out  v out  m' in ...
//   kernels               update m v                          update m' v' ...
void ProgramBuilder::bring_offloaded() {
  std::map<Ref, ValueId> offloaded;
  for (const auto& [v, place] : in_.state.state_index) {
    if (in_.graph.values[v].kind == ValueKind::kOffloaded) offloaded[make_ref(Region::kState, place)] = v;
  }
  if (offloaded.empty()) return;
  const std::vector<Row> rows = std::move(program_.rows);
  const std::vector<RowOrigin> origins = std::move(program_.origins);
  program_.rows.clear(), program_.origins.clear();
  uint64_t place = 0;
  for (const Slot& slot : program_.slots) place = std::max(place, slot.tensor.offset + slot.tensor.bytes);
  for (size_t r = 0; r < rows.size(); ++r) {
    origin_ = origins[r];
    std::vector<std::pair<Ref, Ref>> brought;  // (slot, tensor of State that is copied to it)
    uint64_t offset = place;
    for (uint32_t a = 0; a < kernel_info(rows[r].op, rows[r].pass).arity(); ++a) {
      Ref& ref = program_.arguments[rows[r].first_argument + a];
      const auto found = offloaded.find(ref);
      if (found == offloaded.end()) continue;
      const Value& value = in_.graph.values[found->second];
      brought.emplace_back(make_ref(Region::kProgram, new_slot(value.tensor, value.name, offset, SlotKind::kTransient)),
                           ref);
      ref = brought.back().first;
      offset += value.tensor.bytes;
    }
    for (const Pass pass : {Pass::kStart, Pass::kWait}) {
      for (const auto& [slot, home] : brought) add_transfer(Op::kTransfer, pass, {slot, home}, rows[r].link);
    }
    add_row(rows[r]);
    for (const Pass pass : {Pass::kStart, Pass::kWait}) {
      for (const auto& [slot, home] : brought) add_transfer(Op::kTransfer, pass, {home, slot}, rows[r].link);
    }
  }
}

void ProgramBuilder::find_lifetimes() {
  std::vector<Ref> arguments;
  for (Slot& slot : program_.slots) slot.end_row = 0;
  for (uint32_t r = 0; r < program_.rows.size(); ++r) {
    Row& row = program_.rows[r];
    const uint32_t arity = kernel_info(row.op, row.pass).arity();
    const auto first = program_.arguments.begin() + row.first_argument;
    row.first_argument = static_cast<uint32_t>(arguments.size());
    arguments.insert(arguments.end(), first, first + arity);
    for (auto ref = arguments.end() - arity; ref != arguments.end(); ++ref) {
      Slot* slot = slot_of(*ref);
      if (slot == nullptr) continue;
      const auto hosts = {program_.input, program_.labels, program_.document_start, program_.pairs,
                          program_.token_types};
      const bool staged = std::find(hosts.begin(), hosts.end(), *ref) != hosts.end();
      if (slot->end_row == 0) slot->first_row = staged ? 0 : r;
      slot->end_row = r + 1;
    }
  }
  program_.arguments = std::move(arguments);
  const uint32_t last = static_cast<uint32_t>(program_.rows.size());
  for (uint32_t s = 0; s < program_.slots.size(); ++s) {
    Slot& slot = program_.slots[s];
    if (slot.use == SlotKind::kCache) slot.first_row = 0;
    if (slot.use == SlotKind::kCache || s == program_.output) slot.end_row = last;
  }
}

// Numbers slots in the order of their first rows, and removes slots that no row touches.
void ProgramBuilder::sort_slots(Region region, std::vector<Slot>& slots, std::vector<std::string>& names) {
  std::vector<uint32_t> order;
  for (uint32_t s = 0; s < slots.size(); ++s) {
    if (slots[s].end_row != 0) order.push_back(s);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&slots](uint32_t a, uint32_t b) { return slots[a].first_row < slots[b].first_row; });
  std::vector<uint32_t> new_id(slots.size(), kNoSlot);
  std::vector<Slot> sorted;
  std::vector<std::string> sorted_names;
  for (const uint32_t old : order) {
    new_id[old] = static_cast<uint32_t>(sorted.size());
    sorted.push_back(slots[old]);
    sorted_names.push_back(names[old]);
  }
  slots = std::move(sorted);
  names = std::move(sorted_names);
  for (Ref& ref : program_.arguments) {
    if (ref != kNoRef && ref_region(ref) == region) ref = make_ref(region, new_id[ref_index(ref)]);
  }
  if (region != Region::kProgram) return;
  for (uint32_t* host : {&program_.input, &program_.labels, &program_.document_start, &program_.pairs,
                         &program_.token_types, &program_.output}) {
    if (*host != kNoSlot) *host = new_id[*host];
  }
}

void ProgramBuilder::find_neighbours() {
  std::map<uint64_t, uint32_t> live;          // offset -> slot
  std::multimap<uint32_t, uint32_t> deaths;   // end row -> slot
  for (uint32_t id = 0; id < program_.slots.size(); ++id) {
    Slot& slot = program_.slots[id];
    while (!deaths.empty() && deaths.begin()->first <= slot.first_row) {
      const uint32_t dead = deaths.begin()->second;
      deaths.erase(deaths.begin());
      const auto at = live.find(program_.slots[dead].tensor.offset);
      if (at != live.end() && at->second == dead) live.erase(at);
    }
    for (auto at = live.upper_bound(slot.tensor.offset); at != live.begin() && slot.below == kNoSlot;) {
      const Slot& lower = program_.slots[(--at)->second];
      // Only the source of a move may overlap the slot.
      const bool is_move_source = lower.tensor.offset + lower.tensor.bytes > slot.tensor.offset;
      if (!is_move_source) slot.below = at->second;
    }
    live[slot.tensor.offset] = id;
    deaths.insert({slot.end_row, id});
  }
}

}  // namespace reprise
