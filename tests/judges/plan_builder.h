// PlanBuilder makes small valid plans from a list of rows. It derives lifetimes, first-fit
// addresses and hints from the rows. Tests and benchmarks of the proof use it for plans that do not
// come from the planner. It has no graphs, schedules or budgets, and shares no code with the
// planner or check.h.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <numeric>

#include "lib/backend_rules.h"
#include "tools/plan/lowering/owned_plan.h"

namespace reprise::testing {

using Shape = std::initializer_list<uint32_t>;

class PlanBuilder {
 public:
  OwnedPlan plan;

  PlanBuilder() { state(StateKind::kScalars, "scalars", {static_cast<uint32_t>(sizeof(StepScalars))}, DType::kU8); }

  Ref state(StateKind kind, const std::string& name, Shape shape, DType dtype = DType::kF32) {
    return lasting(kind, plan.state_bytes, name, shape, dtype);
  }
  // Adds a parameter that is streamed from the file of weights, after the previous one in the file.
  Ref streamed(const std::string& name, Shape shape, DType dtype = DType::kF32) {
    return lasting(StateKind::kStreamed, plan.streamed_bytes, name, shape, dtype);
  }
  // Adds an offloaded tensor of State, which is stored in host memory. Must be called before the
  // first call of disk().
  Ref offloaded(const std::string& name, Shape shape, DType dtype = DType::kF32) {
    return lasting(StateKind::kOffloaded, plan.spill_bytes, name, shape, dtype);
  }
  Ref carried(Shape shape) {
    plan.carried.push_back(place(shape, DType::kF32, plan.carried_bytes));
    return make_ref(Region::kCarried, static_cast<uint32_t>(plan.carried.size() - 1));
  }
  static Ref scalars() { return make_ref(Region::kState, 0); }

  // Starts a program. Until end(), slots are numbered in the order in which they were added. end()
  // sorts them by birth.
  void begin(ProgramId id) { here_ = &plan.program(id); }
  Ref slot(Shape shape, DType dtype = DType::kF32, SlotKind use = SlotKind::kTransient) {
    uint64_t nowhere = 0;
    here_->slots.push_back({place(shape, dtype, nowhere), kNoRow, 0, kNoSlot, use});
    return static_cast<Ref>(here_->slots.size() - 1);
  }
  Ref input(Shape shape, DType dtype = DType::kF32) { return here_->input = slot(shape, dtype, SlotKind::kInput); }
  Ref labels(Shape shape) { return here_->labels = slot(shape, DType::kI32, SlotKind::kLabel); }
  Ref document_start(Shape shape) { return here_->document_start = slot(shape, DType::kI32, SlotKind::kInput); }
  Ref pairs(uint32_t count) {
    return here_->pairs = slot({count, JudgedPair::kNumbers}, DType::kF64, SlotKind::kInput);
  }
  Ref cache(Shape shape) { return slot(shape, DType::kF32, SlotKind::kCache); }
  Ref output(Shape shape) { return here_->output = slot(shape); }
  // Adds a block of the second level at `offset`. Blocks must be added in the order of their
  // births.
  Ref disk(Shape shape, uint64_t offset, DType dtype = DType::kF32) {
    uint64_t end = offset;
    here_->spilled.push_back({place(shape, dtype, end), kNoRow, 0, kNoSlot, SlotKind::kBoundary});
    plan.spill_bytes = std::max(plan.spill_bytes, end);
    return make_ref(Region::kSpill, static_cast<uint32_t>(here_->spilled.size() - 1));
  }
  void row(Op op, Pass pass, std::initializer_list<Ref> arguments, uint32_t attribute = 0, uint16_t accumulate = 0) {
    here_->rows.push_back({op, pass, 0, accumulate, attribute, 0, static_cast<uint32_t>(here_->arguments.size())});
    here_->arguments.insert(here_->arguments.end(), arguments);
  }
  void end() {
    find_lifetimes();
    sort_by_birth();
    place_slots();
  }

  // Sets the sizes and returns the plan. `stack_bytes`: bytes of a worker's stack beyond
  // kFrameStackBytes.
  OwnedPlan finish(uint64_t stack_bytes = 0) {
    uint64_t maximum = 0;
    plan.worker_stack_bytes = 0;
    for (const OwnedProgram& program : plan.programs) {
      maximum = std::max(maximum, program.bytes);
      if (!program.rows.empty()) plan.worker_stack_bytes = kFrameStackBytes + stack_bytes;
    }
    plan.arena_bytes = plan.state_bytes + plan.carried_bytes + maximum;
    return plan;
  }

 private:
  static constexpr uint32_t kNoRow = ~0u;

  // Adds a tensor of State at offset `end` of its memory (arena, file or host), and advances `end`
  // past it.
  Ref lasting(StateKind kind, uint64_t& end, const std::string& name, const Shape& shape, DType dtype) {
    StateTensor named;
    named.tensor = place(shape, dtype, end);
    named.kind = kind;
    named.name = plan.keep(name);
    plan.state.push_back(named);
    return make_ref(Region::kState, static_cast<uint32_t>(plan.state.size() - 1));
  }

  static Tensor place(Shape shape, DType dtype, uint64_t& end) {
    Tensor tensor;
    tensor.dtype = dtype;
    tensor.rank = static_cast<uint8_t>(shape.size());
    std::copy(shape.begin(), shape.end(), tensor.shape);
    tensor.offset = end;
    tensor.bytes = align_up(tensor.used_bytes());
    end += tensor.bytes;
    return tensor;
  }

  void find_lifetimes() {
    for (uint32_t r = 0; r < here_->rows.size(); ++r) {
      const Row& row = here_->rows[r];
      const uint32_t last = r + 1 < here_->rows.size() ? here_->rows[r + 1].first_argument
                                                       : static_cast<uint32_t>(here_->arguments.size());
      for (uint32_t a = row.first_argument; a < last; ++a) {
        const Ref ref = here_->arguments[a];
        const bool on_disk = ref != kNoRef && ref_region(ref) == Region::kSpill;
        if (ref == kNoRef || (!on_disk && ref_region(ref) != Region::kProgram)) continue;
        Slot& slot = on_disk ? here_->spilled[ref_index(ref)] : here_->slots[ref];
        slot.first_row = std::min(slot.first_row, r);
        slot.end_row = r + 1;
      }
    }
    for (const uint32_t host : {here_->input, here_->labels, here_->document_start, here_->pairs, here_->token_types}) {
      if (host != kNoSlot) here_->slots[host].first_row = 0;
    }
    for (Slot& slot : here_->slots) {
      if (slot.use == SlotKind::kCache) slot.first_row = 0, slot.end_row = static_cast<uint32_t>(here_->rows.size());
    }
  }

  void sort_by_birth() {
    std::vector<uint32_t> order(here_->slots.size()), renamed(here_->slots.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(),
                     [this](uint32_t a, uint32_t b) { return here_->slots[a].first_row < here_->slots[b].first_row; });
    std::vector<Slot> sorted;
    for (uint32_t i = 0; i < order.size(); ++i) {
      renamed[order[i]] = i;
      sorted.push_back(here_->slots[order[i]]);
    }
    here_->slots = std::move(sorted);
    for (Ref& ref : here_->arguments) {
      if (ref != kNoRef && ref_region(ref) == Region::kProgram) ref = renamed[ref];
    }
    for (uint32_t* host :
         {&here_->input, &here_->labels, &here_->document_start, &here_->pairs, &here_->token_types, &here_->output}) {
      if (*host != kNoSlot) *host = renamed[*host];
    }
  }

  void place_slots() {
    std::vector<uint32_t> live;  // sorted by address
    for (uint32_t i = 0; i < here_->slots.size(); ++i) {
      Slot& slot = here_->slots[i];
      std::erase_if(live, [&](uint32_t l) { return here_->slots[l].end_row <= slot.first_row; });
      uint64_t offset = 0;
      auto at = live.begin();
      for (; at != live.end() && here_->slots[*at].tensor.offset < offset + slot.tensor.bytes; ++at) {
        offset = here_->slots[*at].tensor.offset + here_->slots[*at].tensor.bytes;
      }
      slot.tensor.offset = offset;
      slot.below = at == live.begin() ? kNoSlot : *(at - 1);
      live.insert(at, i);
      here_->bytes = std::max(here_->bytes, offset + slot.tensor.bytes);
    }
  }

  OwnedProgram* here_ = nullptr;
};

}  // namespace reprise::testing
