// The lowering of lower.h: each action of the schedule in its turn.
// Offsets come from the layout; which values share them, from the arranged links.
#include "tools/lowering/lower.h"

#include <algorithm>

#include "tools/lowering/program_builder.h"

namespace reprise {

RegionHeader region_header(const Graph& graph, const HeldBlock& held, const WeightWindow& window, const Sharing& sharing) {
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
  for (const auto& [v, offset] : held.offsets) header.offsets[v] = header.bytes + offset;
  header.bytes += held.bytes;
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
  TrainingLowering(const LoweringInput& input, ProgramId id) : in_(input), builder_(input, id), ran_(input.links.size(), false),
        being_written_(input.links.size(), false), recorded_(input.links.size(), nullptr), held_(input.links.size(), nullptr) {
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
  bool is_placed(ValueId v) const { return v != kNoValue && !lives_in_header(in_.graph.values[v]); }  // by the layout, in the chain's area

  bool first_time(int i) {
    const bool first = !ran_[static_cast<size_t>(i)];
    ran_[static_cast<size_t>(i)] = true;
    return first;
  }

  void advance(const Action& action, const ActionPlacement& place) {
    for (int u = action.first; u < action.last; ++u) {
      const LinkPlacement& at = place.links[static_cast<size_t>(u - action.first)];
      SlotPlaces places;
      if (is_placed(link(u).output)) places[link(u).output] = {at.output, SlotUse::kBoundary};
      builder_.emit(forward_in_mode(u, action.choice, at.residue, places), at.scratch, places, static_cast<uint32_t>(u), first_time(u));
    }
  }

  // The calls of an advance over link u; in a residue mode the first pass lays the residue down, later ones use it.
  const ArrangedCalls& forward_in_mode(int u, int mode, uint64_t residue_offset, SlotPlaces& places) {
    if (mode < 0) return link(u).advance;
    const ResidueChoice& residue = link(u).residues[static_cast<size_t>(mode)];
    const ResidueChoice*& held = held_[static_cast<size_t>(u)];
    if (held != nullptr) return held->held;
    held = &residue;
    for (const ValueId v : residue.kept) {
      places[v] = {residue_offset, SlotUse::kTape};
      residue_offset += in_.graph.tensor(v).bytes;
    }
    return residue.lay;
  }

  // The tape's block: the output in front, then what is kept and no residue holds.
  void record(const Action& action, const ActionPlacement& place) {
    const LinkBody& body = link(action.first);
    const TapeChoice& tape = body.tapes[static_cast<size_t>(action.choice)];
    SlotPlaces places;
    uint64_t offset = place.tape;
    if (is_placed(body.output)) {
      places[body.output] = {offset, SlotUse::kBoundary};
      offset += in_.graph.tensor(body.output).bytes;
    }
    const ResidueChoice* held = held_[static_cast<size_t>(action.first)];
    for (const ValueId v : tape.kept) {
      if (held != nullptr && std::find(held->kept.begin(), held->kept.end(), v) != held->kept.end()) continue;
      places[v] = {offset, SlotUse::kTape};
      offset += in_.graph.tensor(v).bytes;
    }
    const ArrangedCalls& forward = held != nullptr ? held->records[static_cast<size_t>(action.choice)] : tape.forward;
    builder_.emit(forward, place.scratch, places, static_cast<uint32_t>(action.first), first_time(action.first));
    recorded_[static_cast<size_t>(action.first)] = &tape;
  }

  void backward(const Action& action, const ActionPlacement& place) {
    const LinkBody& body = link(action.first);
    SlotPlaces places;
    if (is_placed(body.d_input)) places[body.d_input] = {place.new_gradient, SlotUse::kGradient};
    const TapeChoice& tape = *recorded_.at(static_cast<size_t>(action.first));
    builder_.emit(tape.backward, place.scratch, places, static_cast<uint32_t>(action.first), false);
    gradient_ = body.d_input;
    held_[static_cast<size_t>(action.first)] = nullptr;
  }

  // A held boundary lies in memory anyway.
  void write(const Action& action, const ActionPlacement& place) {
    if (!is_placed(boundary(action.first))) return;
    builder_.start_write(boundary(action.first), place.disk, static_cast<uint32_t>(action.first));
    being_written_[static_cast<size_t>(action.first)] = true;
  }

  void read(const Action& action, const ActionPlacement& place) {
    if (is_placed(boundary(action.first))) builder_.read_back(boundary(action.first), place.links[0].output, static_cast<uint32_t>(action.first));
  }

  // A slot ends with its last reader, of which the disk may be one.
  void drop(const Action& action) {
    if (!being_written_[static_cast<size_t>(action.first)]) return;
    builder_.end_write(boundary(action.first), static_cast<uint32_t>(action.first));
    being_written_[static_cast<size_t>(action.first)] = false;
  }

  const LoweringInput& in_;
  ProgramBuilder builder_;
  std::vector<bool> ran_;                     // links whose first forward has run
  std::vector<bool> being_written_;           // by boundary: on its way to disk
  std::vector<const TapeChoice*> recorded_;   // by link
  std::vector<const ResidueChoice*> held_;    // by link; null where no residue is held
  ValueId gradient_ = kNoValue;               // the boundary gradient that is live
};

}  // namespace

OwnedProgram lower_training(const LoweringInput& input, const std::vector<Action>& actions, const ChainLayout& layout, ProgramId id) {
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
  const SlotPlaces places = {{generation.logits, {end, SlotUse::kTransient}}};
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
  const SlotPlaces places = {{answers, {end, SlotUse::kTransient}}};
  end += input.graph.tensor(answers).bytes;
  builder.emit(arrange_calls(input.graph, calls, {answers}, input.rules), end, places, 0, true);
  builder.set_output(answers);
  return builder.finish();
}

}  // namespace reprise
