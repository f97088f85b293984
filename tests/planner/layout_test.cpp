// Judges the layouts of random chains with random nested schedules: compares every live block with
// every other. A wrong offset would train on overwritten values without any error, so the judge
// shares no code with the layout.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <stdexcept>
#include <string>

#include "tools/plan/layout/chain_layout.h"

namespace reprise {
namespace {

// ---- random chains and schedules ----

struct Taste {
  uint64_t largest_boundary = 64;
  uint64_t largest_scratch = 0;
  bool residues = false;
  int longest = 14;
  bool disk = false;
  bool kept_tapes = false;
};

class Dice {
 public:
  explicit Dice(uint32_t seed) : engine_(seed) {}
  uint64_t upto(uint64_t maximum) { return std::uniform_int_distribution<uint64_t>(0, maximum)(engine_); }
  int between(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
  bool one_in(int n) { return between(1, n) == 1; }

 private:
  std::mt19937 engine_;
};

// Sets the bytes that a tape and a residue need together, at random: at least the bytes of the
// larger one (a residue counts with the boundary), at most the sum of both.
void share_bytes(Link& link, Dice& dice) {
  for (Residue& residue : link.residues) {
    for (const Tape& tape : link.tapes) {
      const uint64_t minimum = std::max(tape.bytes, link.boundary_bytes + residue.bytes),
                     maximum = tape.bytes + residue.bytes;
      residue.tape_bytes.push_back(minimum + dice.upto(maximum - minimum));
    }
  }
}

Chain random_chain(Dice& dice, const Taste& taste) {
  Chain chain;
  const int length = dice.between(1, taste.longest), modes = taste.residues ? dice.between(1, 3) : 0;
  const uint64_t one_size = dice.one_in(3) ? 1 + dice.upto(taste.largest_boundary) : 0;
  const auto boundary = [&] { return one_size != 0 ? one_size : 1 + dice.upto(taste.largest_boundary); };
  chain.input_bytes = boundary();
  for (int i = 0; i < length; ++i) {
    Link link;
    const bool loss = i + 1 == length;
    link.boundary_bytes = loss ? 0 : boundary();
    link.forward_scratch_bytes = dice.upto(taste.largest_scratch);
    uint64_t largest_residue = 0;
    for (int k = 0; k < modes; ++k) {
      link.residues.push_back({dice.one_in(4) ? 0 : dice.upto(taste.largest_boundary), 1});
      largest_residue = std::max(largest_residue, link.residues.back().bytes);
    }
    for (int c = dice.between(1, 2); c > 0; --c) {
      Tape tape;
      tape.bytes = link.boundary_bytes + largest_residue + dice.upto(4 * taste.largest_boundary);
      tape.scratch_bytes = dice.upto(taste.largest_scratch);
      tape.forward_scratch_bytes = dice.upto(taste.largest_scratch);
      link.tapes.push_back(tape);
    }
    if (dice.one_in(2)) share_bytes(link, dice);
    chain.links.push_back(link);
  }
  return chain;
}

void solve(const Chain& chain, int first, int last, int mode, const Taste& taste, Dice& dice,
           std::vector<Action>& actions);

// Draws a schedule as solve() does, for links first to last, with writes and reads. `written`:
// boundary `first` is already on disk; otherwise it may be written now. If it is on disk, an
// advance may drop it from memory, and it is read again for the earlier links.
void solve_spilled(const Chain& chain, int first, int last, int mode, bool written, const Taste& taste, Dice& dice,
                   std::vector<Action>& actions) {
  if (first == last || dice.one_in(4)) return solve(chain, first, last, mode, taste, dice, actions);
  if (first > 0 && !written && dice.one_in(2)) {
    actions.push_back({ActionKind::kWrite, first, 0, -1});
    written = true;
  }
  const int to = dice.between(first + 1, last);
  const bool leaves = written && dice.one_in(2);
  actions.push_back({ActionKind::kAdvance, first, to, mode});
  if (leaves) actions.push_back({ActionKind::kDrop, first, 0, -1});
  solve_spilled(chain, to, last, mode, false, taste, dice, actions);
  actions.push_back({ActionKind::kDrop, to, 0, -1});
  if (leaves) actions.push_back({ActionKind::kRead, first, 0, -1});
  solve_spilled(chain, first, to - 1, mode, written, taste, dice, actions);
}

// Draws a schedule for links first to last, if the tape of `last` is already stored and its
// gradient is live. Boundary `last` is computed again.
void solve_holding(const Chain& chain, int first, int last, const Taste& taste, Dice& dice,
                   std::vector<Action>& actions) {
  if (first == last) {
    actions.push_back({ActionKind::kBackward, first, 0, -1});
  } else if (dice.one_in(3)) {
    actions.push_back(
        {ActionKind::kRecord, first, 0, dice.between(0, static_cast<int>(chain.links[first].tapes.size()) - 1)});
    solve_holding(chain, first + 1, last, taste, dice, actions);
    actions.push_back({ActionKind::kBackward, first, 0, -1});
  } else {
    const int to = dice.between(first + 1, last);
    actions.push_back({ActionKind::kAdvance, first, to, -1});
    solve_holding(chain, to, last, taste, dice, actions);
    actions.push_back({ActionKind::kDrop, to, 0, -1});
    solve(chain, first, to - 1, -1, taste, dice, actions);
  }
}

// Draws a schedule for links first to last: by the recursion C(first, last) of PLANNING 4 and 5,
// but with random choices in place of the minimum. `mode` is the residue mode of all these links;
// -1: none.
void solve(const Chain& chain, int first, int last, int mode, const Taste& taste, Dice& dice,
           std::vector<Action>& actions) {
  const int tapes = static_cast<int>(chain.links[first].tapes.size());
  const auto record = [&] { actions.push_back({ActionKind::kRecord, first, 0, dice.between(0, tapes - 1)}); };
  if (first == last) {
    record();
    actions.push_back({ActionKind::kBackward, first, 0, -1});
  } else if (dice.one_in(3)) {
    record();
    solve(chain, first + 1, last, mode, taste, dice, actions);
    actions.push_back({ActionKind::kBackward, first, 0, -1});
  } else if (taste.kept_tapes && mode < 0 && last > first + 1 && dice.one_in(2)) {
    const int kept = dice.between(first + 1, last - 1);
    const int tape = dice.between(0, static_cast<int>(chain.links[kept].tapes.size()) - 1);
    actions.push_back({ActionKind::kAdvance, first, kept, -1});
    actions.push_back({ActionKind::kRecord, kept, 0, tape});
    actions.push_back({ActionKind::kDrop, kept, 0, -1});
    solve(chain, kept + 1, last, -1, taste, dice, actions);
    solve_holding(chain, first, kept, taste, dice, actions);
  } else {
    const int modes = static_cast<int>(chain.links[first].residues.size());
    const int to = dice.between(first + 1, last);
    const int chosen = mode >= 0 ? mode : dice.between(-1, modes - 1);
    actions.push_back({ActionKind::kAdvance, first, to, chosen});
    if (taste.disk && mode < 0) solve_spilled(chain, to, last, mode, false, taste, dice, actions);
    else solve(chain, to, last, mode, taste, dice, actions);
    actions.push_back({ActionKind::kDrop, to, 0, -1});
    solve(chain, first, to - 1, chosen, taste, dice, actions);
  }
}

struct Case {
  Chain chain;
  std::vector<Action> actions;
};

Case random_case(uint32_t seed, const Taste& taste) {
  Dice dice(seed);
  Case made{random_chain(dice, taste), {}};
  solve(made.chain, 0, made.chain.length() - 1, -1, taste, dice, made.actions);
  return made;
}

std::vector<Taste> tastes() {
  std::vector<Taste> all;
  for (bool disk : {false, true})
    for (bool kept_tapes : {false, true})
      for (bool residues : {false, true})
        for (uint64_t scratch : {0u, 8u, 64u, 1000u})
          for (uint64_t boundary : {1u, 5u, 64u}) all.push_back({boundary, scratch, residues, 14, disk, kept_tapes});
  return all;
}

// ---- the judge ----

struct Block {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

bool overlap(const Block& a, const Block& b) {
  return a.bytes > 0 && b.bytes > 0 && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

class Judge {
 public:
  Judge(const Chain& chain, const std::vector<Action>& actions, const ChainLayout& layout)
      : chain_(chain), layout_(layout) {
    live_["boundary 0"] = {0, chain.input_bytes};
    gradient_ = chain.length();
    if (actions.size() != layout.actions.size()) fail("placements are not parallel to the actions");
    for (at_ = 0; at_ < actions.size() && fault.empty(); ++at_) step(actions[at_], layout.actions[at_]);
    if (!fault.empty()) return;
    if (gradient_ != 0 || live_.size() != 2 || !disk_.empty()) fail("something is left live");
    if (disk_highest_ != layout.disk_bytes) fail("disk_bytes is not the highest end on disk");
    if (disk_peak_ != layout.disk_bytes) fail("the disk is packed above its peak");
    if (moved != layout.move_bytes) fail("moved bytes are not the sum of the moves");
    if (highest != layout.packed_bytes) fail("packed_bytes is not the highest end");
    if (peak != layout.peak_bytes) fail("peak_bytes is not the largest sum of live bytes");
    if (peak != layout.packed_bytes) fail("packed above the peak");
  }

  std::string fault;
  uint64_t peak = 0, highest = 0, moved = 0, written = 0;
  std::vector<size_t> at_peak;  // actions during which the live bytes equal the peak

 private:
  void fail(const std::string& what) {
    if (fault.empty()) fault = "action " + std::to_string(at_) + ": " + what;
  }

  // Requires that no two blocks overlap and that no block exceeds the area.
  void look(std::map<std::string, Block> live) {
    uint64_t sum = 0;
    for (auto a = live.begin(); a != live.end(); ++a) {
      sum += a->second.bytes;
      if (a->second.bytes > 0) highest = std::max(highest, a->second.offset + a->second.bytes);
      for (auto b = std::next(a); b != live.end(); ++b)
        if (overlap(a->second, b->second)) fail(a->first + " overlaps " + b->first);
    }
    if (sum > peak) at_peak.clear();
    if (sum >= peak) at_peak.push_back(at_);
    peak = std::max(peak, sum);
  }

  Block boundary(int i) {
    for (const std::string& name : {"boundary " + std::to_string(i), "tape " + std::to_string(i - 1)})
      if (live_.count(name) > 0) return {live_[name].offset, chain_.boundary_bytes(i)};
    fail("boundary " + std::to_string(i) + " is not live");
    return {};
  }

  void move(const GradientMove& move) {
    Block& gradient = live_["gradient"];
    if (move.from != gradient.offset || move.bytes != gradient.bytes || move.bytes == 0)
      fail("moves what is not the gradient");
    gradient.offset = move.to;
    moved += move.bytes;
    look(live_);
  }

  void step(const Action& action, const ActionPlacement& placed) {
    if (at_ == 0) live_["gradient"] = {placed.gradient, chain_.boundary_bytes(chain_.length())};
    for (const GradientMove& m : placed.moves) move(m);
    const Block gradient = live_["gradient"];
    if (gradient.bytes != placed.gradient_bytes) fail("gradient_bytes is wrong");
    if (gradient.bytes > 0 && gradient.offset != placed.gradient) fail("the gradient is elsewhere");
    if (action.kind == ActionKind::kRead) return read(action, placed);
    if (boundary(action.first).bytes > 0 && placed.input != boundary(action.first).offset)
      fail("the input is elsewhere");
    switch (action.kind) {
      case ActionKind::kAdvance: advance(action, placed); break;
      case ActionKind::kRecord: record(action, placed); break;
      case ActionKind::kBackward: backward(action, placed); break;
      case ActionKind::kDrop:
        look(live_);
        live_.erase("boundary " + std::to_string(action.first));
        break;
      case ActionKind::kWrite: write(action, placed); break;
      case ActionKind::kRead: break;
    }
  }

  void write(const Action& action, const ActionPlacement& placed) {
    look(live_);
    if (disk_.count(action.first) > 0) fail("a second copy on disk");
    const Block block = {placed.disk, chain_.boundary_bytes(action.first)};
    uint64_t sum = block.bytes;
    for (const auto& [other, copy] : disk_) {
      if (overlap(copy, block)) fail("copies overlap on disk");
      sum += copy.bytes;
    }
    disk_[action.first] = block;
    disk_peak_ = std::max(disk_peak_, sum);
    disk_highest_ = std::max(disk_highest_, block.offset + block.bytes);
  }

  void read(const Action& action, const ActionPlacement& placed) {
    if (disk_.count(action.first) == 0 || disk_[action.first].offset != placed.disk)
      return fail("reads what is not there on disk");
    const std::string name = "boundary " + std::to_string(action.first);
    if (live_.count(name) > 0 || placed.links.size() != 1) return fail("reads what is in memory");
    live_[name] = {placed.links[0].output, chain_.boundary_bytes(action.first)};
    written += chain_.boundary_bytes(action.first);
    look(live_);
  }

  void advance(const Action& action, const ActionPlacement& placed) {
    if (placed.links.size() != static_cast<size_t>(action.last - action.first))
      return fail("not one placement per link");
    for (int u = action.first; action.choice >= 0 && u < action.last; ++u) {
      const std::string name = "residue " + std::to_string(u);
      const Block residue = {placed.links[u - action.first].residue, chain_.links[u].residues[action.choice].bytes};
      if (live_.count(name) > 0 && live_[name].offset != residue.offset) fail(name + " is elsewhere");
      if (live_.count(name) == 0) written += residue.bytes;
      mode_[u] = action.choice;
      live_[name] = residue;
    }
    Block input;
    for (int u = action.first; u < action.last; ++u) {
      const LinkPlacement& link = placed.links[u - action.first];
      auto now = live_;
      const Block output = {link.output, chain_.boundary_bytes(u + 1)};
      if (u > action.first) now["link's input"] = input;
      now["link's output"] = output;
      now["link's scratch"] = {link.scratch, chain_.links[u].forward_scratch_bytes};
      look(now);
      written += output.bytes;
      input = output;
    }
    live_["boundary " + std::to_string(action.last)] = input;
  }

  void record(const Action& action, const ActionPlacement& placed) {
    const Link& link = chain_.links[action.first];
    const Tape& tape = link.tapes[action.choice];
    const std::string residue = "residue " + std::to_string(action.first);
    uint64_t bytes = tape.bytes;
    if (live_.count(residue) > 0) {
      if (placed.residue_bytes != live_[residue].bytes) fail("residue_bytes is wrong");
      if (placed.residue != live_[residue].offset) fail("the residue is elsewhere");
      const std::vector<uint64_t>& together = link.residues[mode_.at(action.first)].tape_bytes;
      if (!together.empty()) bytes = together[action.choice] - live_[residue].bytes;
      else if (action.choice == 0) bytes -= live_[residue].bytes;
    } else if (placed.residue_bytes != 0) {
      fail("a residue that nobody laid down");
    }
    if (placed.tape_bytes != bytes || bytes < link.boundary_bytes) fail("tape_bytes is wrong");
    live_["tape " + std::to_string(action.first)] = {placed.tape, bytes};
    scratch_[action.first] = tape.scratch_bytes;
    written += bytes;
    auto now = live_;
    now["scratch"] = {placed.scratch, tape.forward_scratch_bytes};
    look(now);
  }

  void backward(const Action& action, const ActionPlacement& placed) {
    const std::string tape = "tape " + std::to_string(action.first),
                      residue = "residue " + std::to_string(action.first);
    if (gradient_ != action.first + 1 || live_.count(tape) == 0) return fail("a backward without its gradient or tape");
    if (placed.tape_bytes != live_[tape].bytes) fail("tape_bytes is wrong");
    if (placed.tape_bytes > 0 && placed.tape != live_[tape].offset) fail("the tape is elsewhere");
    if (live_.count(residue) > 0 && placed.residue != live_[residue].offset) fail("the residue is elsewhere");
    const Block born = {placed.new_gradient, chain_.boundary_bytes(action.first)};
    auto now = live_;
    now["new gradient"] = born;
    now["scratch"] = {placed.scratch, scratch_[action.first]};
    look(now);
    written += born.bytes;
    live_.erase(tape);
    live_.erase(residue);
    live_["gradient"] = born;
    gradient_ = action.first;
    disk_.erase(action.first);
  }

  const Chain& chain_;
  const ChainLayout& layout_;
  std::map<std::string, Block> live_;
  std::map<int, uint64_t> scratch_;  // bytes of the backward's scratch, by link
  std::map<int, int> mode_;          // residue mode of the link, now or most recently
  std::map<int, Block> disk_;        // copies on disk, by boundary
  uint64_t disk_peak_ = 0, disk_highest_ = 0;
  int gradient_ = 0;
  size_t at_ = 0;
};

// ---- the tests ----

TEST(ChainLayout, PacksEveryNestedScheduleToItsPeak) {
  uint64_t moved = 0, written = 0;
  int cases = 0, still = 0;
  double mean = 0;
  for (const Taste& taste : tastes()) {
    for (uint32_t seed = 1; seed <= 400; ++seed) {
      const Case made = random_case(seed, taste);
      const ChainLayout layout = layout_chain(made.chain, made.actions);
      const Judge judge(made.chain, made.actions, layout);
      ASSERT_EQ(judge.fault, "") << "seed " << seed << " boundary " << taste.largest_boundary << " scratch "
                                 << taste.largest_scratch << " residues " << taste.residues;
      moved += judge.moved;
      written += judge.written;
      mean += static_cast<double>(judge.moved) / static_cast<double>(judge.written);
      still += judge.moved == 0;
      ++cases;
    }
  }
  std::printf("%d schedules: moved / written bytes %.3f%% in all, %.3f%% on average, none in %.0f%%\n", cases,
              100.0 * static_cast<double>(moved) / static_cast<double>(written), 100.0 * mean / cases,
              100.0 * still / cases);
  EXPECT_LT(mean / cases, 0.01);
}

TEST(ChainLayout, LongChains) {
  for (bool residues : {false, true, false}) {
    const Case made = random_case(7, {1000, 3000, residues, 400, !residues, residues});
    const ChainLayout layout = layout_chain(made.chain, made.actions);
    EXPECT_EQ(Judge(made.chain, made.actions, layout).fault, "") << made.actions.size() << " actions";
  }
}

// A chain with an input of 10 bytes and three links with boundaries of 4, 2 and 0 bytes. The
// expected offsets were computed by hand.
TEST(ChainLayout, ASmallChainByHand) {
  Chain chain;
  chain.input_bytes = 10;
  for (uint64_t boundary : {4, 2, 0}) {
    Link link;
    link.boundary_bytes = boundary;
    link.tapes.push_back({boundary + 3, 1, 1, 2});
    chain.links.push_back(link);
  }
  const std::vector<Action> actions = {{ActionKind::kAdvance, 0, 2, -1}, {ActionKind::kRecord, 2, 0, 0},
                                       {ActionKind::kBackward, 2, 0, -1}, {ActionKind::kDrop, 2, 0, -1},
                                       {ActionKind::kRecord, 0, 0, 0},    {ActionKind::kRecord, 1, 0, 0},
                                       {ActionKind::kBackward, 1, 0, -1}, {ActionKind::kBackward, 0, 0, -1}};
  const ChainLayout layout = layout_chain(chain, actions);
  EXPECT_EQ(Judge(chain, actions, layout).fault, "");
  // Live in backward 1: input 10, tapes 7 and 5, gradients 2 and 4, scratch 1, in total 29. Live in
  // backward 0: 10 + 7 + 4 + 10 + 1 = 32.
  EXPECT_EQ(layout.packed_bytes, 32u);
  EXPECT_EQ(layout.actions[0].links[1].output, 30u);
  EXPECT_EQ(layout.actions[4].tape, 25u);
  EXPECT_EQ(layout.actions[5].tape, 20u);
  EXPECT_EQ(layout.move_bytes, 0u);
}

// Returns the offsets of the placement of action `i` that have an effect. Mutants change them by 1.
std::vector<uint64_t*> offsets_of(const Case& made, ChainLayout& layout, size_t i) {
  ActionPlacement& placed = layout.actions[i];
  const Action& action = made.actions[i];
  std::vector<uint64_t*> all;
  if (placed.gradient_bytes > 0) all.push_back(&placed.gradient);
  if (placed.tape_bytes > 0) all.push_back(&placed.tape);
  if (placed.residue_bytes > 0) all.push_back(&placed.residue);
  if (made.chain.boundary_bytes(action.first) > 0) all.push_back(&placed.input);
  if (action.kind == ActionKind::kBackward) all.push_back(&placed.new_gradient);
  if (action.kind == ActionKind::kAdvance) all.push_back(&placed.links.back().output);
  return all;
}

// In an action at which the live bytes equal the peak, no block can be shifted without overlap. In
// other actions a shift could be harmless, so they are not mutated in this way.
TEST(ChainLayout, TheJudgeRejectsMutants) {
  int mutants = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    const Case made = random_case(seed, {64, 64, true, 10, seed % 2 == 0, seed % 3 == 0});
    const ChainLayout layout = layout_chain(made.chain, made.actions);
    const Judge judge(made.chain, made.actions, layout);
    ASSERT_EQ(judge.fault, "");
    const auto rejected = [&](const ChainLayout& mutant) {
      ++mutants;
      return !Judge(made.chain, made.actions, mutant).fault.empty();
    };
    for (size_t i : judge.at_peak) {
      ChainLayout copy = layout;
      for (uint64_t* offset : offsets_of(made, copy, i))
        for (int shift : {-1, 1}) {
          *offset += shift;
          EXPECT_TRUE(rejected(copy)) << "seed " << seed << " action " << i;
          *offset -= shift;
        }
    }
    for (size_t i = 0; i < layout.actions.size(); ++i) {
      if (layout.actions[i].moves.empty()) continue;
      ChainLayout mutant = layout;
      mutant.actions[i].moves.clear();
      EXPECT_TRUE(rejected(mutant)) << "seed " << seed << " action " << i;
      mutant = layout;
      mutant.actions[i].moves[0].to = made.chain.input_bytes - 1;  // moves the gradient onto the input
      mutant.actions[i].gradient = made.chain.input_bytes - 1;
      EXPECT_TRUE(rejected(mutant)) << "seed " << seed << " action " << i;
    }
    ChainLayout mutant = layout;
    mutant.packed_bytes += 1;
    EXPECT_TRUE(rejected(mutant));
  }
  std::printf("%d mutants\n", mutants);
  EXPECT_GT(mutants, 500);
}

TEST(ChainLayout, TheInputsGradientOfALossAlone) {
  Chain chain;
  chain.input_bytes = 8;
  chain.links.resize(1);
  chain.links[0].tapes.push_back({0, 1, 3, 5});
  const std::vector<Action> actions = {{ActionKind::kRecord, 0, 0, 0}, {ActionKind::kBackward, 0, 0, -1}};
  const ChainLayout layout = layout_chain(chain, actions);
  EXPECT_EQ(Judge(chain, actions, layout).fault, "");
  EXPECT_EQ(layout.packed_bytes, 19u);
}

// Returns a case with more than 20 actions. If `disk`, it has writes, and every written boundary is
// also read; otherwise the write could be omitted without a fault.
Case long_case(bool disk) {
  for (uint32_t seed = 1;; ++seed) {
    Case made = random_case(seed, {64, 8, true, 10, disk, true});
    std::set<int> written, read;
    for (const Action& action : made.actions) {
      if (action.kind == ActionKind::kWrite) written.insert(action.first);
      if (action.kind == ActionKind::kRead) read.insert(action.first);
    }
    if (made.actions.size() > 20 && written == read && written.empty() != disk) return made;
  }
}

// True if the schedule remains valid when two adjacent actions are exchanged. This holds only for a
// write and the advance after it.
bool may_swap(const Action& a, const Action& b) {
  return a.kind == ActionKind::kWrite && b.kind == ActionKind::kAdvance;
}

TEST(ChainLayout, WhatIsNoNestedRecursionThrows) {
  for (const bool disk : {false, true}) {
    const Case good = long_case(disk);
    EXPECT_NO_THROW((void)layout_chain(good.chain, good.actions));
    for (size_t i = 0; i < good.actions.size(); ++i) {
      std::vector<Action> actions = good.actions;
      actions.erase(actions.begin() + static_cast<std::ptrdiff_t>(i));
      EXPECT_THROW((void)layout_chain(good.chain, actions), std::logic_error) << "without action " << i;
    }
    for (size_t i = 0; i + 1 < good.actions.size(); ++i) {
      std::vector<Action> actions = good.actions;
      std::swap(actions[i], actions[i + 1]);
      if (may_swap(good.actions[i], good.actions[i + 1])) {
        EXPECT_EQ(Judge(good.chain, actions, layout_chain(good.chain, actions)).fault, "");
      } else {
        EXPECT_THROW((void)layout_chain(good.chain, actions), std::logic_error)
            << "actions " << i << " and the next swapped";
      }
    }
    std::vector<Action> actions = good.actions;
    actions.push_back(actions.back());
    EXPECT_THROW((void)layout_chain(good.chain, actions), std::logic_error);
  }
}

}  // namespace
}  // namespace reprise
