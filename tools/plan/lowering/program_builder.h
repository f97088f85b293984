// Builds one program: rows over slots and disk blocks, from calls over values. Training, update and
// evaluation programs are built in the same way.
#pragma once

#include <initializer_list>
#include <map>
#include <set>

#include "tools/plan/lowering/lower.h"

namespace reprise {

struct SlotPlace {
  uint64_t offset = 0;  // from the end of the region's header
  SlotKind use = SlotKind::kTransient;
};
using SlotPlaces = std::map<ValueId, SlotPlace>;

class ProgramBuilder {
 public:
  ProgramBuilder(const LoweringInput& input, ProgramId id)
      : in_(input), id_(id), header_(region_header(input.graph, input.skips, input.window, input.sharing)) {}

  // Sets the action of the following rows.
  void begin_action(uint32_t action) { origin_.action = action; }

  // Adds the slots that the host fills. The input's slot is at `input_offset` after the header.
  void stage_inputs(uint64_t input_offset);

  // Adds a slot that keeps its contents between runs of the program, at `offset` after the header.
  void stage_cache(ValueId v, uint64_t offset);
  // Sets the value that the host reads after the last row.
  void set_output(ValueId v) { program_.output = current_.at(v); }

  // Emits the rows of one arranged list. `places`: the values that get a new place in this action;
  // other values stay where they are. `first_time`: this is the link's first forward.
  void emit(const ArrangedCalls& arranged, uint64_t scratch_offset, const SlotPlaces& places, uint32_t link,
            bool first_time);

  // Emits a row that moves v to another place. The old and the new place may overlap.
  void move(ValueId v, uint64_t to, uint32_t link);

  // Emits rows that copy v between memory and the spill file. start_write() only starts the copy,
  // and end_write() waits for it. read_back() waits at once, and v is then in memory at `to`.
  // `disk`: offset in the file.
  void start_write(ValueId v, uint64_t disk, uint32_t link);
  void end_write(ValueId v, uint32_t link);
  void read_back(ValueId v, uint64_t to, uint32_t link);

  // Finishes the program. Drops rows whose results nothing reads, and shares gradients among ranks.
  // Loads streamed weights before the rows that read them, and offloaded moments before the rows
  // that update them. Finds the slots' lifetimes, sorts slots by birth and finds their lower
  // neighbours.
  OwnedProgram finish();

 private:
  void emit_call(const ArrangedCalls& arranged, size_t c, const Call& call, uint32_t link);
  Ref reference(const ArrangedCalls& arranged, ValueId v, bool writes);
  Ref buffer_reference(const ArrangedCalls& arranged, size_t b, ValueId v);
  uint32_t new_buffer_slot(const ArrangedCalls::Buffer& buffer, ValueId v);
  ValueId first_alike(const ArrangedCalls::Buffer& buffer, ValueId v) const;
  uint32_t placed_slot(ValueId v);
  uint32_t new_slot(const Tensor& tensor, const std::string& name, uint64_t offset, SlotKind use);
  void add_row(const Row& row);
  void add_transfer(Op op, Pass pass, std::initializer_list<Ref> arguments, uint32_t link);
  Slot* slot_of(Ref ref);
  void drop_idle_rows();
  // A streamed weight that a row reads: the whole weight or, if `gathered`, only the rows of a
  // table for an embedding's tokens.
  struct Wanted {
    uint32_t place = 0;  // index in State
    bool gathered = false;
    auto operator<=>(const Wanted&) const = default;
  };
  // The slots of one load. `places`: i32 [B,T], for each token the index of its row in `weight`;
  // kNoSlot unless the load gathers rows.
  struct LoadedSlots {
    uint32_t weight = kNoSlot, places = kNoSlot;
  };
  template <typename Visit>
  void for_each_streamed(const Row& row, const Visit& visit) const;  // calls visit(argument, wanted)
  std::vector<WeightLoad> plan_loads(std::vector<Wanted>& wanted) const;
  void load_streamed_weights();
  void bring_offloaded();
  bool is_streamed(Ref ref) const;
  bool gathers(const Row& row, uint32_t argument) const;
  uint64_t window_bytes_of(const Wanted& wanted) const;
  Tensor gathered_rows(uint32_t place) const;
  ValueId value_at(uint32_t place) const;
  LoadedSlots new_loaded_slots(const Wanted& wanted, uint64_t offset);
  void add_load(const Wanted& wanted, const LoadedSlots& slots, Pass pass, uint32_t link);
  void find_lifetimes();
  void sort_slots(Region region, std::vector<Slot>& slots, std::vector<std::string>& names);
  void find_neighbours();

  const LoweringInput& in_;
  const ProgramId id_;
  const RegionHeader header_;
  OwnedProgram program_;
  RowOrigin origin_;
  std::map<ValueId, uint32_t> current_;  // by value: its current slot
  std::map<ValueId, Ref> on_disk_;       // by value: the block with a copy

  // State of the list being emitted:
  const SlotPlaces* places_ = nullptr;
  uint64_t scratch_offset_ = 0;
  std::set<ValueId> created_;           // values that already have their new place
  // Slots of successive values of equal shape in one buffer; index: the buffer and the first of
  // these values.
  std::map<std::pair<size_t, ValueId>, uint32_t> buffer_slot_;
  std::map<ValueId, size_t> buffer_of_;
};

}  // namespace reprise
