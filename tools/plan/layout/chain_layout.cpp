// Places the blocks of a chain schedule on two stacks in one pass over the actions. The bottom
// stack grows up from the input, and contains residues and tapes that outlive their link's input.
// The top stack grows down from the arena's end, and contains the other tapes and kept boundaries
// (exceptions: chain_layout.h). Then float_gradient() places the remaining blocks in the gap
// between the stacks (PLANNING 6).
#include "tools/plan/layout/chain_layout.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "lib/assert.h"
#include "tools/plan/layout/gradient_path.h"

namespace reprise {
namespace {

int64_t length_of(uint64_t bytes) { return static_cast<int64_t>(bytes); }
uint64_t address_of(int64_t offset) {
  REPRISE_ASSERT(offset >= 0, "a block lies behind the start of its range");
  return static_cast<uint64_t>(offset);
}

// A block on one of the stacks: a kept boundary, or a tape with its link's output in front. A
// negative `place` is an offset from the arena's end, which is known only after the pass.
struct Kept {
  int boundary = 0;  // boundary at the block's start
  int64_t place = 0;
  int64_t bytes = 0;
  bool on_bottom = false;
  int tape_of = -1;          // link whose tape the block is; -1: a boundary
  size_t record = 0;         // for a tape: index of the action that wrote it
  int64_t backward_scratch = 0;
};

struct ResiduePlace {
  int64_t offset = 0;
  int64_t bytes = 0;
  int mode = -1;
};

struct OnDisk {
  int boundary = 0;
  int64_t offset = 0;
};

// Computes both stacks before and during each action. The maximum sum of live bytes is the arena's
// end.
class StackWalk {
 public:
  StackWalk(const Chain& chain, const std::vector<Action>& actions);

  struct StackPlaces {
    int64_t input = 0;  // offset of the boundary that the action reads
    int64_t tape = 0;   // record and backward: offset of the tape
  };

  int64_t peak = 0;
  int64_t disk_peak = 0;
  std::vector<GapStep> steps;               // one for each action; `top` is relative to the arena's end
  std::vector<StackPlaces> places;
  std::vector<ActionPlacement> placements;  // without the offsets of blocks in the gap and of blocks on the top stack

 private:
  void advance(const Action& action);
  void record(const Action& action);
  void backward(const Action& action);
  void drop(const Action& action);
  void write(const Action& action);
  void read(const Action& action);
  void keep(int boundary, bool on_bottom);
  const Kept* find(int boundary) const;
  size_t latest_read(int boundary) const;
  bool lay_residues(const Action& action);
  GapStep open_step() const;
  void close_step(GapStep step, int64_t live_in_gap);
  void require(bool holds, const char* what) const;
  int64_t boundary(int i) const { return length_of(chain_.boundary_bytes(i)); }

  const Chain& chain_;
  std::vector<Kept> kept_;          // blocks of both stacks, the latest at the end
  std::vector<OnDisk> on_disk_;     // the latest at the end
  std::vector<ResiduePlace> residues_;  // indexed by link
  // Indexed by action: true if the result of the advance or record outlives the boundary that it
  // reads.
  std::vector<bool> outlives_;
  int64_t bottom_ = 0;
  int64_t depth_ = 0;
  int gradient_ = 0;  // the boundary of the live gradient
};

// Returns one flag for each action. It is true for an advance i->j after which boundary i is
// dropped before boundary j. It is also true for a record of link j after which boundary j is
// dropped before the backward of link j.
std::vector<bool> outliving_results(const Chain& chain, const std::vector<Action>& actions) {
  std::vector<bool> outlives(actions.size(), false);
  std::vector<size_t> next_drop(chain.links.size() + 1, actions.size()), next_backward(next_drop);
  for (size_t n = actions.size(); n-- > 0;) {
    const Action& action = actions[n];
    const auto next = [&](const std::vector<size_t>& where, int i) {
      return i > 0 && i <= chain.length() ? where[static_cast<size_t>(i)] : actions.size();
    };
    if (action.kind == ActionKind::kAdvance) outlives[n] = next(next_drop, action.first) < next(next_drop, action.last);
    if (action.kind == ActionKind::kRecord)
      outlives[n] = next(next_drop, action.first) < next(next_backward, action.first);
    if (action.first <= 0 || action.first > chain.length()) continue;
    if (action.kind == ActionKind::kDrop) next_drop[static_cast<size_t>(action.first)] = n;
    if (action.kind == ActionKind::kBackward) next_backward[static_cast<size_t>(action.first)] = n;
  }
  return outlives;
}

StackWalk::StackWalk(const Chain& chain, const std::vector<Action>& actions)
    : chain_(chain),
      residues_(chain.links.size()),
      outlives_(outliving_results(chain, actions)),
      gradient_(chain.length()) {
  kept_.push_back({});
  bottom_ = peak = boundary(0);
  for (const Action& action : actions) {
    placements.emplace_back();
    places.push_back({.input = kept_.back().place});
    require(action.first >= 0 && action.first < chain.length(), "a link that the chain has not");
    switch (action.kind) {
      case ActionKind::kAdvance: advance(action); break;
      case ActionKind::kRecord: record(action); break;
      case ActionKind::kBackward: backward(action); break;
      case ActionKind::kDrop: drop(action); break;
      case ActionKind::kWrite: write(action); break;
      case ActionKind::kRead: read(action); break;
    }
  }
  require(gradient_ == 0 && kept_.size() == 1 && on_disk_.empty(), "the schedule ends before the backward of link 0");
}

void StackWalk::require(bool holds, const char* what) const {
  if (holds) return;
  const std::string index = placements.empty() ? "none" : std::to_string(placements.size() - 1);
  throw std::logic_error("layout_chain, action " + index + ": " + what);
}

GapStep StackWalk::open_step() const {
  GapStep step;
  step.bottom = bottom_;
  step.top = -depth_;
  step.gradient = boundary(gradient_);
  return step;
}

void StackWalk::close_step(GapStep step, int64_t live_in_gap) {
  peak = std::max(peak, step.bottom + live_in_gap - step.top);
  placements.back().gradient_bytes = address_of(step.gradient);
  steps.push_back(std::move(step));
}

// Reserves all new residues at once, in the order of links. Returns true if the advance has a
// residue mode.
bool StackWalk::lay_residues(const Action& action) {
  const bool held = residues_[action.first].mode >= 0;
  for (int u = action.first; u < action.last; ++u) {
    ResiduePlace& residue = residues_[u];
    require(residue.mode == (held ? action.choice : -1), "a residue mode that differs from the one held");
    if (held || action.choice < 0) continue;
    const auto& modes = chain_.links[u].residues;
    require(action.choice < static_cast<int>(modes.size()), "a residue mode that the link has not");
    residue = {bottom_, length_of(modes[action.choice].bytes), action.choice};
    bottom_ += residue.bytes;
  }
  return action.choice >= 0;
}

// Returns the latest block that begins with this boundary, on either stack; null for none.
const Kept* StackWalk::find(int boundary) const {
  for (size_t n = kept_.size(); n-- > 0;) {
    if (kept_[n].boundary == boundary) return &kept_[n];
  }
  return nullptr;
}

// Returns the index in kept_ of an action's input: the latest block, or the block below the latest
// if the latest is a tape that outlives the input.
size_t StackWalk::latest_read(int boundary) const {
  const size_t last = kept_.size() - 1;
  const bool beneath =
      kept_[last].boundary != boundary && kept_[last].tape_of >= 0 && kept_[last].on_bottom && last > 0;
  require(kept_[beneath ? last - 1 : last].boundary == boundary, "an input that is not the latest kept");
  return beneath ? last - 1 : last;
}

void StackWalk::keep(int which, bool on_bottom) {
  const int64_t bytes = boundary(which);
  if (!on_bottom) depth_ += bytes;
  kept_.push_back({.boundary = which, .place = on_bottom ? bottom_ : -depth_, .bytes = bytes, .on_bottom = on_bottom});
  if (on_bottom) bottom_ += bytes;
}

void StackWalk::advance(const Action& action) {
  const Kept& input_block = kept_[latest_read(action.first)];
  places.back().input = input_block.place;
  require(action.last > action.first && action.last < gradient_, "an advance out of its range");
  const bool in_mode = lay_residues(action);
  GapStep step = open_step();
  int64_t maximum = 0, input = 0;
  for (int u = action.first; u < action.last; ++u) {
    const int64_t output = boundary(u + 1), scratch = length_of(chain_.links[u].forward_scratch_bytes);
    step.forwards.push_back({output, scratch});
    maximum = std::max(maximum, input + output + scratch);
    input = output;
    placements.back().links.push_back({.residue = in_mode ? address_of(residues_[u].offset) : 0});
  }
  const int64_t gradient = step.gradient;
  const bool on_bottom = outlives_[placements.size() - 1] && !input_block.on_bottom;
  step.joins_bottom = on_bottom;
  close_step(std::move(step), gradient + maximum);
  keep(action.last, on_bottom);
}

void StackWalk::record(const Action& action) {
  const Link& link = chain_.links[action.first];
  places.back().input = kept_[latest_read(action.first)].place;
  require(action.first < gradient_, "a record out of its range");
  require(action.choice >= 0 && action.choice < static_cast<int>(link.tapes.size()), "a tape that the link has not");
  const Tape& tape = link.tapes[action.choice];
  const ResiduePlace& residue = residues_[action.first];
  const int64_t rest = length_of(link.tape_bytes(action.choice, residue.mode)) - residue.bytes;
  const int64_t scratch = length_of(tape.forward_scratch_bytes);
  GapStep step = open_step();
  step.forwards.push_back({rest, scratch});
  const bool on_bottom = outlives_[placements.size() - 1];
  require(!on_bottom || residue.mode < 0, "a tape over a residue that outlives its input");
  step.joins_bottom = on_bottom;
  const int64_t gradient = step.gradient;
  close_step(std::move(step), gradient + rest + scratch);
  if (!on_bottom) depth_ += rest;
  places.back().tape = on_bottom ? bottom_ : -depth_;
  if (on_bottom) bottom_ += rest;
  ActionPlacement& placed = placements.back();
  placed.tape_bytes = address_of(rest);
  placed.residue = address_of(residue.offset);
  placed.residue_bytes = address_of(residue.bytes);
  kept_.push_back({.boundary = action.first + 1,
                   .place = places.back().tape,
                   .bytes = rest,
                   .on_bottom = on_bottom,
                   .tape_of = action.first,
                   .record = placements.size() - 1,
                   .backward_scratch = length_of(tape.scratch_bytes)});
}

void StackWalk::backward(const Action& action) {
  const auto found =
      std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) { return kept.tape_of == action.first; });
  require(found != kept_.end(), "a backward whose tape is not kept");
  const Kept tape = *found;
  const bool outermost = tape.on_bottom ? tape.place + tape.bytes == bottom_ : found + 1 == kept_.end();
  require(outermost, "a backward whose tape is not the latest kept");
  require(action.first + 1 == gradient_, "a backward out of order");
  kept_.erase(found);
  require(kept_.back().boundary == action.first, "a backward whose input is not the latest kept");
  places.back() = {.input = kept_.back().place, .tape = tape.place};
  const ActionPlacement& recorded = placements[tape.record];
  ActionPlacement& placed = placements.back();
  placed.tape_bytes = recorded.tape_bytes;
  placed.residue = recorded.residue;
  placed.residue_bytes = recorded.residue_bytes;
  GapStep step = open_step();
  step.births = true;
  step.born = boundary(action.first);
  step.scratch = tape.backward_scratch;
  const int64_t live = step.gradient + step.born + step.scratch;
  close_step(std::move(step), live);
  ResiduePlace& residue = residues_[action.first];
  if (residue.mode >= 0)
    require(residue.offset + residue.bytes == bottom_, "a residue that is not the latest laid down");
  bottom_ -= residue.bytes;
  residue = {};
  if (tape.on_bottom) {
    bottom_ -= tape.bytes;
  } else {
    depth_ -= tape.bytes;
  }
  --gradient_;
  if (!on_disk_.empty() && on_disk_.back().boundary == action.first) on_disk_.pop_back();
}

// Frees a kept boundary. Its block must be the outermost of its stack: either the latest block, or
// the one before the latest, on the other stack.
void StackWalk::drop(const Action& action) {
  const Kept* found = find(action.first);
  require(found != nullptr && action.first > 0 && found->tape_of < 0, "a drop of a boundary that is not kept");
  const Kept kept = *found;
  const bool outermost = kept.on_bottom ? kept.place + kept.bytes == bottom_ : kept.place == -depth_;
  require(outermost && kept_.end() - kept_.begin() - (found - kept_.data()) <= 2,
          "a drop of a boundary that is not outermost");
  const bool is_on_disk =
      std::any_of(on_disk_.begin(), on_disk_.end(), [&](const OnDisk& copy) { return copy.boundary == action.first; });
  const bool is_made_again = kept_.back().tape_of == action.first && kept_.back().on_bottom;
  require(gradient_ == action.first || is_on_disk || is_made_again, "a drop before the backwards that read it");
  places.back().input = kept.place;
  close_step(open_step(), boundary(gradient_));
  if (kept.on_bottom) {
    bottom_ -= kept.bytes;
  } else {
    depth_ -= kept.bytes;
  }
  kept_.erase(kept_.begin() + (found - kept_.data()));
}

void StackWalk::write(const Action& action) {
  const Kept* found = find(action.first);
  require(found != nullptr && action.first > 0 && found->tape_of < 0, "a write of a boundary that is not kept");
  require(on_disk_.empty() || on_disk_.back().boundary < action.first, "a write out of its nesting");
  places.back().input = found->place;
  const int64_t offset = on_disk_.empty() ? 0 : on_disk_.back().offset + boundary(on_disk_.back().boundary);
  on_disk_.push_back({action.first, offset});
  disk_peak = std::max(disk_peak, offset + boundary(action.first));
  placements.back().disk = address_of(offset);
  close_step(open_step(), boundary(gradient_));
}

void StackWalk::read(const Action& action) {
  const auto copy =
      std::find_if(on_disk_.begin(), on_disk_.end(), [&](const OnDisk& c) { return c.boundary == action.first; });
  require(copy != on_disk_.end(), "a read of a boundary that is not on disk");
  require(kept_.back().boundary < action.first, "a read of a boundary that is not the latest");
  placements.back().disk = address_of(copy->offset);
  placements.back().links.push_back({});
  GapStep step = open_step();
  step.forwards.push_back({boundary(action.first), 0});
  const int64_t gradient = step.gradient;
  close_step(std::move(step), gradient + boundary(action.first));
  keep(action.first, false);
}

// Returns the highest end of all blocks, the input and the first gradient included.
uint64_t highest_end(const Chain& chain, const std::vector<Action>& actions, const ChainLayout& layout) {
  uint64_t end = chain.boundary_bytes(0);
  const auto cover = [&end](uint64_t offset, uint64_t bytes) {
    if (bytes > 0) end = std::max(end, offset + bytes);
  };
  std::vector<uint64_t> scratch_of_tape(chain.links.size());
  for (size_t i = 0; i < actions.size(); ++i) {
    const Action& action = actions[i];
    const ActionPlacement& placed = layout.actions[i];
    const Link& link = chain.links[action.first];
    cover(placed.gradient, placed.gradient_bytes);
    cover(placed.tape, placed.tape_bytes);
    cover(placed.residue, placed.residue_bytes);
    for (int u = action.first; action.kind == ActionKind::kAdvance && u < action.last; ++u) {
      const LinkPlacement& at = placed.links[u - action.first];
      cover(at.output, chain.boundary_bytes(u + 1));
      cover(at.scratch, chain.links[u].forward_scratch_bytes);
      if (action.choice >= 0) cover(at.residue, chain.links[u].residues[action.choice].bytes);
    }
    if (action.kind == ActionKind::kRecord) {
      cover(placed.scratch, link.tapes[action.choice].forward_scratch_bytes);
      scratch_of_tape[action.first] = link.tapes[action.choice].scratch_bytes;
    }
    if (action.kind == ActionKind::kBackward) {
      cover(placed.new_gradient, chain.boundary_bytes(action.first));
      cover(placed.scratch, scratch_of_tape[action.first]);
    }
    if (action.kind == ActionKind::kRead) cover(placed.links[0].output, chain.boundary_bytes(action.first));
  }
  return end;
}

void place_floating(const Action& action, const GapAnswer& answer, ActionPlacement& placed) {
  placed.gradient = address_of(answer.gradient);
  if (answer.moved_from != answer.gradient && placed.gradient_bytes > 0)
    placed.moves.push_back({address_of(answer.moved_from), placed.gradient, placed.gradient_bytes});
  switch (action.kind) {
    case ActionKind::kAdvance:
    case ActionKind::kRead:
      for (size_t u = 0; u < placed.links.size(); ++u) {
        placed.links[u].output = address_of(answer.forwards[u].output);
        placed.links[u].scratch = address_of(answer.forwards[u].scratch);
      }
      break;
    case ActionKind::kRecord: placed.scratch = address_of(answer.forwards[0].scratch); break;
    case ActionKind::kBackward:
      placed.new_gradient = address_of(answer.born);
      placed.scratch = address_of(answer.scratch);
      break;
    case ActionKind::kDrop:
    case ActionKind::kWrite: break;
  }
}

}  // namespace

ChainLayout layout_chain(const Chain& chain, const std::vector<Action>& actions) {
  StackWalk walk(chain, actions);
  for (GapStep& step : walk.steps) step.top += walk.peak;
  const std::vector<GapAnswer> answers = float_gradient(walk.steps);
  ChainLayout layout;
  layout.actions = std::move(walk.placements);
  layout.peak_bytes = address_of(walk.peak);
  layout.disk_bytes = address_of(walk.disk_peak);
  const auto address_in_arena = [&walk](int64_t place) { return address_of(place < 0 ? walk.peak + place : place); };
  for (size_t i = 0; i < actions.size(); ++i) {
    ActionPlacement& placed = layout.actions[i];
    placed.input = address_in_arena(walk.places[i].input);
    if (placed.tape_bytes > 0) placed.tape = address_in_arena(walk.places[i].tape);
    place_floating(actions[i], answers[i], placed);
    for (const GradientMove& move : placed.moves) layout.move_bytes += move.bytes;
  }
  layout.packed_bytes = highest_end(chain, actions, layout);
  REPRISE_ASSERT(layout.packed_bytes == layout.peak_bytes,
                 "stacks and the floating gradient leave no hole at the peak");
  return layout;
}

}  // namespace reprise
