// Builds one program: rows over slots and disk blocks, from calls over values.
// Here because training, update and evaluation programs are lowered alike.
#pragma once

#include <initializer_list>
#include <map>
#include <set>

#include "tools/lowering/lower.h"

namespace reprise {

struct SlotPlace {
  uint64_t offset = 0;  // from the end of the region's header
  SlotUse use = SlotUse::kTransient;
};
using SlotPlaces = std::map<ValueId, SlotPlace>;

class ProgramBuilder {
 public:
  ProgramBuilder(const LoweringInput& input, ProgramId id) : in_(input), id_(id), header_(region_header(input.graph, input.held, input.window, input.sharing)) {}

  // What the rows to come belong to.
  void begin_action(uint32_t action) { origin_.action = action; }

  // The slots that the host fills; the input's lies at `input_offset` behind the header.
  void stage_inputs(uint64_t input_offset);

  // A slot that is held from one run of the program to the next, at `offset` behind the header.
  void stage_cache(ValueId v, uint64_t offset);
  // What the host reads after the last row.
  void set_output(ValueId v) { program_.output = current_.at(v); }

  // Rows of one arranged list. `places` are the values this action gives a new place; others are found where they are.
  // `first_time`: this is the link's first forward.
  void emit(const ArrangedCalls& arranged, uint64_t scratch_offset, const SlotPlaces& places, uint32_t link, bool first_time);

  // Takes v to another place; the two may overlap.
  void move(ValueId v, uint64_t to, uint32_t link);

  // Between memory and the spill file. A write starts, and is waited for by end_write; a read is waited for at once, and gives v
  // the memory at `to`. `disk` are offsets in the file.
  void start_write(ValueId v, uint64_t disk, uint32_t link);
  void end_write(ValueId v, uint32_t link);
  void read_back(ValueId v, uint64_t to, uint32_t link);

  // Drops rows whose results nothing reads, shares gradients among ranks, loads streamed weights ahead of the rows that read them, brings offloaded moments to the rows that
  // update them and takes them back, finds the slots' lifetimes, puts the slots in the order of birth and names their lower neighbours.
  OwnedProgram finish();

 private:
  void emit_call(const ArrangedCalls& arranged, size_t c, const Call& call, uint32_t link);
  Ref reference(const ArrangedCalls& arranged, ValueId v, bool writes);
  Ref buffer_reference(const ArrangedCalls& arranged, size_t b, ValueId v);
  uint32_t new_buffer_slot(const ArrangedCalls::Buffer& buffer, ValueId v);
  ValueId first_alike(const ArrangedCalls::Buffer& buffer, ValueId v) const;
  uint32_t placed_slot(ValueId v);
  uint32_t new_slot(const Tensor& tensor, const std::string& name, uint64_t offset, SlotUse use);
  void add_row(const Row& row);
  void add_transfer(Op op, Pass pass, std::initializer_list<Ref> arguments, uint32_t link);
  Slot* slot_of(Ref ref);
  void drop_idle_rows();
  // A streamed weight as a row wants it: the whole, or of a table the rows of an embedding's tokens.
  struct Wanted {
    uint32_t place = 0;  // in State
    bool gathered = false;
    auto operator<=>(const Wanted&) const = default;
  };
  // The slots of a load. `places`: of one that gathers.
  struct LoadedSlots {
    uint32_t weight = kNoSlot, places = kNoSlot;
  };
  template <typename Visit>
  void for_each_streamed(const Row& row, const Visit& visit) const;  // visit(argument, wanted)
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
  std::map<ValueId, uint32_t> current_;  // the slot that holds a value now
  std::map<ValueId, Ref> on_disk_;       // the block that holds a copy

  // Of the list being emitted:
  const SlotPlaces* places_ = nullptr;
  uint64_t scratch_offset_ = 0;
  std::set<ValueId> created_;           // values that have got their new place
  std::map<std::pair<size_t, ValueId>, uint32_t> buffer_slot_;  // of a buffer and the first of its values that have one shape
  std::map<ValueId, size_t> buffer_of_;
};

}  // namespace reprise
