// Walks a schedule's actions once for its two stacks, then asks gradient_path for what floats between them (DESIGN 6).
// Tapes and kept boundaries grow down from the peak, residues grow up from the input; both are popped in nesting order.
// It must not know why a strategy chose its actions.
#include "tools/layout/chain_layout.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "tools/layout/gradient_path.h"

namespace reprise {
namespace {

int64_t length_of(uint64_t bytes) { return static_cast<int64_t>(bytes); }
uint64_t address_of(int64_t offset) { return static_cast<uint64_t>(offset); }

// A block of the top stack: a kept boundary, or a tape with its link's output in front.
struct Kept {
  int boundary = 0;   // that lies at the block's start
  int64_t depth = 0;  // of the block's start below the arena's end
  int64_t bytes = 0;
  int tape_of = -1;          // link, or -1
  size_t record = 0;         // tape: the action that wrote it
  int64_t backward_scratch = 0;
};

struct Residues {
  int64_t offset = 0;
  int64_t bytes = 0;
  int mode = -1;
};

// Both stacks before and during each action. Addresses on the top stack are depths below the arena's end until the walk is
// over, when the largest sum of live bytes says where that end is.
class StackWalk {
 public:
  StackWalk(const Chain& chain, const std::vector<Action>& actions);

  static constexpr int64_t kAtStart = -1;
  struct Depths {
    int64_t input = kAtStart;  // of the boundary that the action reads; kAtStart: a(0)
    int64_t tape = 0;          // record and backward
  };

  int64_t peak = 0;
  std::vector<GapStep> steps;               // with `top` counted from the arena's end
  std::vector<Depths> depths;
  std::vector<ActionPlacement> placements;  // all but what depends on the end or floats

 private:
  void advance(const Action& action);
  void record(const Action& action);
  void backward(const Action& action);
  void drop(const Action& action);
  bool lay_residues(const Action& action);
  GapStep open_step() const;
  void close_step(GapStep step, int64_t live_in_gap);
  void require(bool holds, const char* what) const;
  int64_t boundary(int i) const { return length_of(chain_.boundary_bytes(i)); }

  const Chain& chain_;
  std::vector<Kept> top_;
  std::vector<Residues> residues_;  // by link
  int64_t bottom_ = 0;
  int64_t depth_ = 0;
  int gradient_ = 0;  // of which boundary
};

StackWalk::StackWalk(const Chain& chain, const std::vector<Action>& actions)
    : chain_(chain), residues_(chain.links.size()), gradient_(chain.length()) {
  top_.push_back({.depth = kAtStart});
  bottom_ = peak = boundary(0);
  for (const Action& action : actions) {
    placements.emplace_back();
    depths.push_back({.input = top_.back().depth});
    require(action.first >= 0 && action.first < chain.length(), "a link that the chain has not");
    switch (action.kind) {
      case ActionKind::kAdvance: advance(action); break;
      case ActionKind::kRecord: record(action); break;
      case ActionKind::kBackward: backward(action); break;
      case ActionKind::kDrop: drop(action); break;
    }
  }
  require(gradient_ == 0 && top_.size() == 1, "the schedule ends before the backward of link 0");
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

// True in a residue mode. New residues are reserved at once, in link order.
bool StackWalk::lay_residues(const Action& action) {
  const bool held = residues_[action.first].mode >= 0;
  for (int u = action.first; u < action.last; ++u) {
    Residues& residue = residues_[u];
    require(residue.mode == (held ? action.choice : -1), "a residue mode that differs from the one held");
    if (held || action.choice < 0) continue;
    const auto& modes = chain_.links[u].residues;
    require(action.choice < static_cast<int>(modes.size()), "a residue mode that the link has not");
    residue = {bottom_, length_of(modes[action.choice].bytes), action.choice};
    bottom_ += residue.bytes;
  }
  return action.choice >= 0;
}

void StackWalk::advance(const Action& action) {
  require(top_.back().boundary == action.first, "an advance from a boundary that is not the latest kept");
  require(action.last > action.first && action.last < gradient_, "an advance out of its range");
  const bool in_mode = lay_residues(action);
  GapStep step = open_step();
  int64_t most = 0, input = 0;
  for (int u = action.first; u < action.last; ++u) {
    const int64_t output = boundary(u + 1), scratch = length_of(chain_.links[u].forward_scratch_bytes);
    step.forwards.push_back({output, scratch});
    most = std::max(most, input + output + scratch);
    input = output;
    placements.back().links.push_back({.residue = in_mode ? address_of(residues_[u].offset) : 0});
  }
  const int64_t gradient = step.gradient;
  close_step(std::move(step), gradient + most);
  depth_ += boundary(action.last);
  top_.push_back({.boundary = action.last, .depth = depth_, .bytes = boundary(action.last)});
}

void StackWalk::record(const Action& action) {
  const Link& link = chain_.links[action.first];
  require(top_.back().boundary == action.first, "a record from a boundary that is not the latest kept");
  require(action.first < gradient_, "a record out of its range");
  require(action.choice >= 0 && action.choice < static_cast<int>(link.tapes.size()), "a tape that the link has not");
  const Tape& tape = link.tapes[action.choice];
  const Residues& residue = residues_[action.first];
  const int64_t contained = action.choice == 0 ? residue.bytes : 0;
  const int64_t rest = std::max(length_of(tape.bytes) - contained, boundary(action.first + 1));
  const int64_t scratch = length_of(tape.forward_scratch_bytes);
  GapStep step = open_step();
  step.forwards.push_back({rest, scratch});
  const int64_t gradient = step.gradient;
  close_step(std::move(step), gradient + rest + scratch);
  depth_ += rest;
  depths.back().tape = depth_;
  ActionPlacement& placed = placements.back();
  placed.tape_bytes = address_of(rest);
  placed.residue = address_of(residue.offset);
  placed.residue_bytes = address_of(residue.bytes);
  top_.push_back({.boundary = action.first + 1, .depth = depth_, .bytes = rest, .tape_of = action.first,
                  .record = placements.size() - 1, .backward_scratch = length_of(tape.scratch_bytes)});
}

void StackWalk::backward(const Action& action) {
  const Kept tape = top_.back();
  require(tape.tape_of == action.first, "a backward whose tape is not the latest kept");
  require(action.first + 1 == gradient_, "a backward out of order");
  top_.pop_back();
  depths.back() = {.input = top_.back().depth, .tape = tape.depth};
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
  Residues& residue = residues_[action.first];
  if (residue.mode >= 0) require(residue.offset + residue.bytes == bottom_, "a residue that is not the latest laid down");
  bottom_ -= residue.bytes;
  residue = {};
  depth_ -= tape.bytes;
  --gradient_;
}

void StackWalk::drop(const Action& action) {
  const Kept& kept = top_.back();
  require(top_.size() > 1 && kept.tape_of < 0 && kept.boundary == action.first,
          "a drop of a boundary that is not the latest kept");
  require(gradient_ == action.first, "a drop before the backwards that read it");
  close_step(open_step(), boundary(gradient_));
  depth_ -= kept.bytes;
  top_.pop_back();
}

// The highest end of all blocks, the input's and the first gradient's included.
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
  }
  return end;
}

void place_floating(const Action& action, const GapAnswer& answer, ActionPlacement& placed) {
  placed.gradient = address_of(answer.gradient);
  if (answer.moved_from != answer.gradient && placed.gradient_bytes > 0)
    placed.moves.push_back({address_of(answer.moved_from), placed.gradient, placed.gradient_bytes});
  switch (action.kind) {
    case ActionKind::kAdvance:
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
    case ActionKind::kDrop: break;
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
  for (size_t i = 0; i < actions.size(); ++i) {
    ActionPlacement& placed = layout.actions[i];
    const StackWalk::Depths& depths = walk.depths[i];
    placed.input = depths.input == StackWalk::kAtStart ? 0 : address_of(walk.peak - depths.input);
    if (placed.tape_bytes > 0) placed.tape = address_of(walk.peak - depths.tape);
    place_floating(actions[i], answers[i], placed);
    for (const GradientMove& move : placed.moves) layout.move_bytes += move.bytes;
  }
  layout.packed_bytes = highest_end(chain, actions, layout);
  return layout;
}

}  // namespace reprise
