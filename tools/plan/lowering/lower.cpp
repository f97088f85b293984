// Lowers each action of the schedule in turn. Offsets come from the layout; the arranged links
// determine which values share them.
#include "tools/plan/lowering/lower.h"

#include <algorithm>

#include "lib/assert.h"
#include "tools/plan/lowering/program_builder.h"

namespace reprise {

RegionHeader region_header(const Graph& graph, const SkipBlock& skips, const WeightWindow& window,
                           const Sharing& sharing) {
  RegionHeader header;
  header.labels_bytes = graph.tensor(graph.labels).bytes;
  header.bytes = header.labels_bytes;
  if (graph.document_start != kNoValue) header.bytes += graph.tensor(graph.document_start).bytes;
  header.pairs_offset = header.bytes;
  if (graph.pairs != kNoValue) header.bytes += graph.tensor(graph.pairs).bytes;
  header.types_offset = header.bytes;
  if (graph.token_types != kNoValue) header.bytes += graph.tensor(graph.token_types).bytes;
  for (ValueId v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].kind != ValueKind::kSmall) continue;
    header.offsets[v] = header.bytes;
    header.bytes += graph.tensor(v).bytes;
  }
  for (const auto& [v, offset] : skips.offsets) header.offsets[v] = header.bytes + offset;
  header.bytes += skips.bytes;
  header.sharing_offset = header.bytes;
  header.bytes += sharing.bytes();
  if (window.streamed.empty()) return header;
  header.window_offset = align_to(window.region_start + header.bytes, kStreamAlignment) - window.region_start;
  header.bytes = header.window_offset + window.bytes;
  return header;
}

namespace {

class TrainingLowering {
 public:
  TrainingLowering(const LoweringInput& input, ProgramId id)
      : in_(input),
        builder_(input, id),
        ran_(input.links.size(), false),
        being_written_(input.links.size(), false),
        recorded_(input.links.size(), nullptr),
        residues_in_use_(input.links.size(), nullptr) {
    builder_.stage_inputs(0);  // the layout puts boundary 0 at 0
  }

  void lower(uint32_t index, const Action& action, const ActionPlacement& place) {
    builder_.begin_action(index);
    for (const GradientMove& move : place.moves) {
      if (gradient_ != kNoValue) builder_.move(gradient_, move.to, static_cast<uint32_t>(action.first));
    }
    switch (action.kind) {
      case ActionKind::kAdvance: return advance(action, place);
      case ActionKind::kRecord: return record(action, place);
      case ActionKind::kBackward: return backward(action, place);
      case ActionKind::kDrop: return drop(action);
      case ActionKind::kWrite: return write(action, place);
      case ActionKind::kRead: return read(action, place);
    }
  }

  OwnedProgram finish() { return builder_.finish(); }

 private:
  const LinkBody& link(int i) const { return in_.links[static_cast<size_t>(i)]; }
  ValueId boundary(int i) const { return link(i - 1).output; }
  // True if the layout gives the value a place in the chain's area. Other values are in the header.
  bool is_placed(ValueId v) const { return v != kNoValue && !lives_in_header(in_.graph.values[v]); }

  bool first_time(int i) {
    const bool first = !ran_[static_cast<size_t>(i)];
    ran_[static_cast<size_t>(i)] = true;
    return first;
  }

  void advance(const Action& action, const ActionPlacement& place) {
    for (int u = action.first; u < action.last; ++u) {
      const LinkPlacement& at = place.links[static_cast<size_t>(u - action.first)];
      SlotPlaces places;
      if (is_placed(link(u).output)) places[link(u).output] = {at.output, SlotKind::kBoundary};
      builder_.emit(forward_in_mode(u, action.choice, at.residue, places), at.scratch, places, static_cast<uint32_t>(u),
                    first_time(u));
    }
  }

  // Returns the calls of an advance over link u. In a residue mode the first pass writes the
  // residue, later ones use it.
  const ArrangedCalls& forward_in_mode(int u, int mode, uint64_t residue_offset, SlotPlaces& places) {
    if (mode < 0) return link(u).advance;
    const ResidueChoice& residue = link(u).residues[static_cast<size_t>(mode)];
    const ResidueChoice*& in_use = residues_in_use_[static_cast<size_t>(u)];
    if (in_use != nullptr) return in_use->later;
    in_use = &residue;
    for (const ValueId v : residue.kept) {
      places[v] = {residue_offset, SlotKind::kTape};
      residue_offset += in_.graph.tensor(v).bytes;
    }
    return residue.lay;
  }

  // Emits the rows that record a tape. The tape's block has the output in front, then the kept
  // values that are not in a residue.
  void record(const Action& action, const ActionPlacement& place) {
    const LinkBody& body = link(action.first);
    const TapeChoice& tape = body.tapes[static_cast<size_t>(action.choice)];
    SlotPlaces places;
    uint64_t offset = place.tape;
    if (is_placed(body.output)) {
      places[body.output] = {offset, SlotKind::kBoundary};
      offset += in_.graph.tensor(body.output).bytes;
    }
    const ResidueChoice* in_use = residues_in_use_[static_cast<size_t>(action.first)];
    for (const ValueId v : tape.kept) {
      if (in_use != nullptr && std::find(in_use->kept.begin(), in_use->kept.end(), v) != in_use->kept.end()) continue;
      places[v] = {offset, SlotKind::kTape};
      offset += in_.graph.tensor(v).bytes;
    }
    const ArrangedCalls& forward =
        in_use != nullptr ? in_use->records[static_cast<size_t>(action.choice)] : tape.forward;
    builder_.emit(forward, place.scratch, places, static_cast<uint32_t>(action.first), first_time(action.first));
    recorded_[static_cast<size_t>(action.first)] = &tape;
  }

  void backward(const Action& action, const ActionPlacement& place) {
    const LinkBody& body = link(action.first);
    SlotPlaces places;
    if (is_placed(body.d_input)) places[body.d_input] = {place.new_gradient, SlotKind::kGradient};
    const TapeChoice* const tape = recorded_.at(static_cast<size_t>(action.first));
    REPRISE_ASSERT(tape != nullptr, "a backward follows its link's record");
    builder_.emit(tape->backward, place.scratch, places, static_cast<uint32_t>(action.first), false);
    gradient_ = body.d_input;
    residues_in_use_[static_cast<size_t>(action.first)] = nullptr;
  }

  // Starts the write. A boundary that is a skip stays in memory, and is not written.
  void write(const Action& action, const ActionPlacement& place) {
    if (!is_placed(boundary(action.first))) return;
    builder_.start_write(boundary(action.first), place.disk, static_cast<uint32_t>(action.first));
    being_written_[static_cast<size_t>(action.first)] = true;
  }

  void read(const Action& action, const ActionPlacement& place) {
    if (is_placed(boundary(action.first)))
      builder_.read_back(boundary(action.first), place.links[0].output, static_cast<uint32_t>(action.first));
  }

  // Waits for the boundary's write if it is in progress, because a slot must live until its last
  // reader, here the disk, is done.
  void drop(const Action& action) {
    if (!being_written_[static_cast<size_t>(action.first)]) return;
    builder_.end_write(boundary(action.first), static_cast<uint32_t>(action.first));
    being_written_[static_cast<size_t>(action.first)] = false;
  }

  const LoweringInput& in_;
  ProgramBuilder builder_;
  std::vector<bool> ran_;                     // links whose first forward has run
  std::vector<bool> being_written_;           // by boundary: true if its write to disk is in progress
  std::vector<const TapeChoice*> recorded_;   // by link: the tape recorded last
  std::vector<const ResidueChoice*> residues_in_use_;    // by link; null if no residue is kept
  ValueId gradient_ = kNoValue;               // the boundary gradient that is live
};

}  // namespace

OwnedProgram lower_training(const LoweringInput& input, const std::vector<Action>& actions, const ChainLayout& layout,
                            ProgramId id) {
  REPRISE_ASSERT(layout.actions.size() == actions.size(), "a layout places each action of the schedule");
  TrainingLowering lowering(input, id);
  for (size_t i = 0; i < actions.size(); ++i) lowering.lower(static_cast<uint32_t>(i), actions[i], layout.actions[i]);
  return lowering.finish();
}

OwnedProgram lower_update(const LoweringInput& input) {
  ProgramBuilder builder(input, ProgramId::kUpdate);
  builder.emit(arrange_calls(input.graph, input.state.update, {}, input.rules), 0, {}, 0, true);
  return builder.finish();
}

OwnedProgram lower_generation(const LoweringInput& input, const GenerationCalls& generation) {
  const Graph& graph = input.graph;
  ProgramBuilder builder(input, ProgramId::kGenerate);
  builder.stage_inputs(0);
  uint64_t end = graph.tensor(graph.input).bytes;
  std::vector<ValueId> placed = generation.caches;
  placed.push_back(generation.logits);
  for (const ValueId cache : generation.caches) {
    builder.stage_cache(cache, end);
    end += graph.tensor(cache).bytes;
  }
  const SlotPlaces places = {{generation.logits, {end, SlotKind::kTransient}}};
  end += graph.tensor(generation.logits).bytes;
  builder.emit(arrange_calls(graph, generation.calls, placed, input.rules), end, places, 0, true);
  builder.set_output(generation.logits);
  return builder.finish();
}

OwnedProgram lower_evaluation(const LoweringInput& input, const std::vector<Call>& calls) {
  ProgramBuilder builder(input, ProgramId::kEvaluate);
  builder.stage_inputs(0);
  uint64_t end = input.graph.tensor(input.graph.input).bytes;
  if (input.graph.pairs == kNoValue) {
    builder.emit(arrange_calls(input.graph, calls, {}, input.rules), end, {}, 0, true);
    return builder.finish();
  }
  const ValueId answers = calls.back().arguments[PreferenceEvaluate::kLogProbabilities];
  const SlotPlaces places = {{answers, {end, SlotKind::kTransient}}};
  end += input.graph.tensor(answers).bytes;
  builder.emit(arrange_calls(input.graph, calls, {answers}, input.rules), end, places, 0, true);
  builder.set_output(answers);
  return builder.finish();
}

}  // namespace reprise
