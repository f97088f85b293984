// Inserts, erases and moves rows, and updates the lifetimes of their slots.
#include "tests/judges/plan_edit.h"

#include <algorithm>
#include <stdexcept>

namespace reprise::testing {

const KernelInfo& kernel(const Row& row) {
  const uint32_t index = kernel_index(row.op, row.pass);
  if (index == kKernelCount) throw std::logic_error("a good plan has no such row");
  return kOps[index];
}

uint32_t gradients_argument(const Row& row) {
  const KernelInfo& info = kernel(row);
  uint32_t i = 0;
  while (i < info.arity() && !(info.arguments[i].group && info.arguments[i].role == Role::kInput)) ++i;
  return i;
}

Ref* own_arguments(OwnedProgram& p, uint32_t row) {
  const uint32_t first = p.rows[row].first_argument, arity = kernel(p.rows[row]).arity();
  const std::vector<Ref> refs(p.arguments.begin() + first, p.arguments.begin() + first + arity);
  p.rows[row].first_argument = static_cast<uint32_t>(p.arguments.size());
  p.arguments.insert(p.arguments.end(), refs.begin(), refs.end());
  return p.arguments.data() + p.rows[row].first_argument;
}

void renew_lifetimes(OwnedProgram& p) {
  const uint32_t count = static_cast<uint32_t>(p.rows.size());
  for (auto* list : {&p.slots, &p.spilled}) {
    for (Slot& slot : *list) slot.first_row = slot.end_row = count;
  }
  for (uint32_t r = 0; r < count; ++r) {
    for (uint32_t i = 0; i < kernel(p.rows[r]).arity(); ++i) {
      const Ref ref = p.arguments[p.rows[r].first_argument + i];
      if (!is_local(ref)) continue;
      Slot& slot = is_disk(ref) ? p.spilled[ref_index(ref)] : p.slots[ref];
      slot.first_row = std::min(slot.first_row, r);
      slot.end_row = r + 1;
    }
  }
  for (const uint32_t host : {p.input, p.labels, p.document_start, p.pairs, p.token_types}) {
    if (host != kNoSlot) p.slots[host].first_row = 0;
  }
}

void move_row(OwnedProgram& p, uint32_t from, uint32_t to) {
  const Row row = p.rows[from];
  p.rows.erase(p.rows.begin() + from);
  p.rows.insert(p.rows.begin() + to, row);
  renew_lifetimes(p);
}

void fit_regions(OwnedPlan& plan) {
  uint64_t maximum = 0;
  for (OwnedProgram& program : plan.programs) {
    program.bytes = 0;
    for (const Slot& slot : program.slots)
      program.bytes = std::max(program.bytes, slot.tensor.offset + slot.tensor.bytes);
    maximum = std::max(maximum, program.bytes);
  }
  plan.arena_bytes = plan.state_bytes + plan.carried_bytes + maximum;
}

namespace {

// Increments the references to slot `first` and to later slots.
void make_space(OwnedProgram& p, uint32_t first) {
  for (Ref& ref : p.arguments) {
    if (is_slot(ref) && ref >= first) ++ref;
  }
  for (uint32_t* host : {&p.input, &p.labels, &p.document_start, &p.pairs, &p.token_types, &p.output}) {
    if (*host != kNoSlot && *host >= first) ++*host;
  }
}

Tensor tensor_of(const OwnedPlan& plan, const OwnedProgram& p, Ref ref) {
  switch (ref_region(ref)) {
    case Region::kState: return plan.state[ref_index(ref)].tensor;
    case Region::kCarried: return plan.carried[ref_index(ref)];
    default: return p.slots[ref].tensor;
  }
}

void insert_transfer(OwnedProgram& p, uint32_t row, Pass pass, Ref to, Ref from) {
  p.rows.insert(p.rows.begin() + row,
                {.op = Op::kTransfer, .pass = pass, .first_argument = static_cast<uint32_t>(p.arguments.size())});
  p.arguments.insert(p.arguments.end(), {to, from});
}

}  // namespace

void carry_argument(OwnedPlan& plan, ProgramId id, uint32_t row, uint32_t i, Way way) {
  OwnedProgram& p = plan.program(id);
  const uint32_t rows = way == Way::kDisk ? 4 : 2;
  Ref source = p.arguments[p.rows[row].first_argument + i];
  Slot block, back;
  block.tensor = back.tensor = tensor_of(plan, p, source);
  block.tensor.offset = 0, block.first_row = row, block.end_row = row + rows;
  back.tensor.offset = p.bytes, back.first_row = row + rows - 2, back.end_row = row + rows + 1;
  for (Slot& slot : p.slots) {
    if (slot.first_row >= row) slot.first_row += rows;
    if (slot.end_row > row) slot.end_row += rows;
  }
  uint32_t index = 0;
  while (index < p.slots.size() && p.slots[index].first_row <= back.first_row) ++index;
  make_space(p, index);
  p.slots.insert(p.slots.begin() + index, back);
  if (is_slot(source) && source >= index) ++source;
  for (uint32_t r = row; r < p.rows.size(); ++r) {
    for (uint32_t a = 0; a < kernel(p.rows[r]).arity(); ++a) {
      if (p.arguments[p.rows[r].first_argument + a] != source || kernel(p.rows[r]).arguments[a].role != Role::kInput)
        continue;
      own_arguments(p, r)[a] = index;
      p.slots[index].end_row = r + rows + 1;
    }
  }
  const Ref on_disk = make_ref(Region::kSpill, 0);
  for (const Pass pass : {Pass::kWait, Pass::kStart})
    insert_transfer(p, row, pass, index, way == Way::kDisk ? on_disk : source);
  if (way == Way::kDisk) {
    for (const Pass pass : {Pass::kWait, Pass::kStart}) insert_transfer(p, row, pass, on_disk, source);
    p.spilled.push_back(block);
    plan.spill_bytes = std::max(plan.spill_bytes, block.tensor.bytes);
  }
  if (is_slot(source)) p.slots[source].end_row = ProgramEditor(p).uses(source).second + 1;
  for (uint32_t s = 0; s < p.slots.size(); ++s) p.slots[s].below = ProgramEditor(p).below(s);
  fit_regions(plan);
}

std::vector<Ref> ProgramEditor::arguments(uint32_t row) const {
  const auto first = p_.arguments.begin() + p_.rows[row].first_argument;
  return {first, first + kernel(p_.rows[row]).arity()};
}

std::pair<uint32_t, uint32_t> ProgramEditor::uses(uint32_t slot) const {
  uint32_t first = ~0u, last = 0;
  for (uint32_t r = 0; r < p_.rows.size(); ++r) {
    const std::vector<Ref> refs = arguments(r);
    if (std::find(refs.begin(), refs.end(), slot) == refs.end()) continue;
    first = std::min(first, r);
    last = r;
  }
  return {first, last};
}

void ProgramEditor::erase_row(uint32_t row) {
  p_.rows.erase(p_.rows.begin() + row);
  for (auto* list : {&p_.slots, &p_.spilled}) {
    for (Slot& slot : *list) {
      if (slot.first_row > row) --slot.first_row;
      if (slot.end_row > row) --slot.end_row;
    }
  }
  drop_unused_slots();
}

void ProgramEditor::duplicate_row(uint32_t row) {
  p_.rows.insert(p_.rows.begin() + row, p_.rows[row]);
  for (auto* list : {&p_.slots, &p_.spilled}) {
    for (Slot& slot : *list) {
      if (slot.first_row > row) ++slot.first_row;
      if (slot.end_row > row) ++slot.end_row;
    }
  }
}

// Exchanges rows `row` and `row + 1`. Slots born in the second row are then born one row earlier.
// Slots whose last row is the first row die one row later.
void ProgramEditor::swap_with_next(uint32_t row) {
  std::swap(p_.rows[row], p_.rows[row + 1]);
  for (auto* list : {&p_.slots, &p_.spilled}) {
    for (uint32_t i = 0; i < list->size(); ++i) {
      Slot& slot = (*list)[i];
      const bool moves_up = slot.first_row == row + 1;
      if (moves_up) slot.first_row = row;
      if (slot.first_row <= row && slot.end_row == row + 1) slot.end_row = row + 2;
      if (moves_up && list == &p_.slots) slot.below = below(i);
    }
  }
}

uint32_t ProgramEditor::below(uint32_t index) const {
  uint32_t best = kNoSlot;
  const Slot& slot = p_.slots[index];
  for (uint32_t i = 0; i < index; ++i) {
    const Slot& s = p_.slots[i];
    const bool candidate = s.end_row > slot.first_row && s.tensor.offset + s.tensor.bytes <= slot.tensor.offset;
    if (candidate && (best == kNoSlot || s.tensor.offset > p_.slots[best].tensor.offset)) best = i;
  }
  return best;
}

void ProgramEditor::drop_unused_slots() {
  std::vector<uint32_t> renamed(p_.slots.size(), kNoSlot);
  std::vector<bool> used(p_.slots.size(), false);
  for (uint32_t r = 0; r < p_.rows.size(); ++r) {
    for (const Ref ref : arguments(r)) {
      if (is_slot(ref)) used[ref] = true;
    }
  }
  std::vector<Slot> kept;
  for (uint32_t i = 0; i < p_.slots.size(); ++i) {
    if (!used[i]) continue;
    renamed[i] = static_cast<uint32_t>(kept.size());
    kept.push_back(p_.slots[i]);
  }
  p_.slots = std::move(kept);
  for (Ref& ref : p_.arguments) {
    if (is_slot(ref) && ref < renamed.size() && renamed[ref] != kNoSlot) ref = renamed[ref];
  }
  for (uint32_t* host : {&p_.input, &p_.labels, &p_.document_start, &p_.pairs, &p_.token_types, &p_.output}) {
    if (*host != kNoSlot) *host = renamed[*host];
  }
  for (uint32_t i = 0; i < p_.slots.size(); ++i) p_.slots[i].below = below(i);
}

}  // namespace reprise::testing
