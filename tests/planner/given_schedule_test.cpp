// Tests `schedule --check` on schedules from other programs. A correct schedule must be accepted
// with its price. A wrong one must be refused with the number of its first wrong action. Also tests
// actions in the text form that checkpoint_schedules prints. No later step checks an accepted
// schedule again. The judge below keeps sets of names and shares no code with simulate.cpp.
#include "tools/plan/schedule/given_schedule.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <set>

#include "tests/interfaces/expect_user_error.h"
#include "tools/files/io/error.h"
#include "tools/files/io/output_file.h"
#include "tools/plan/layout/chain_layout.h"
#include "tools/plan/schedule/schedule.h"
#include "tools/plan/schedule/schedule_command.h"

namespace reprise {
namespace {

Chain random_chain(uint64_t seed, int length, int modes) {
  std::mt19937_64 random(seed);
  const auto upto = [&](uint64_t maximum) { return random() % (maximum + 1); };
  Chain chain{.input_bytes = 1 + upto(5), .links = {}};
  for (int i = 0; i < length; ++i) {
    Link link{.name = "l",
              .forward_cost = static_cast<double>(1 + upto(8)),
              .boundary_bytes = i + 1 == length ? 0 : 1 + upto(5),
              .tapes = {},
              .residues = {}};
    for (const uint64_t more : {upto(9), uint64_t{0}})
      link.tapes.push_back({.bytes = link.boundary_bytes + more, .backward_cost = static_cast<double>(2 + upto(9))});
    for (int k = 0; k < modes; ++k) link.residues.push_back({.bytes = upto(4), .forward_cost = link.forward_cost / 2});
    chain.links.push_back(link);
  }
  return chain;
}

Chain unit_chain(int length) {
  Chain chain{.input_bytes = 1, .links = {}};
  for (int i = 0; i < length; ++i) {
    chain.links.push_back({.name = "step",
                           .forward_cost = 1,
                           .boundary_bytes = i + 1 == length ? 0u : 1u,
                           .tapes = {{.bytes = 10, .backward_cost = 2}},
                           .residues = {}});
  }
  return chain;
}

// Keeps the set of live values by name: "b3" is boundary 3 outside a tape, "t3" the tape of link 3,
// "r3:0" its residue of mode 0, "d3" the copy of boundary 3 on disk, and "g3" the gradient of
// boundary 3.
class Judge {
 public:
  explicit Judge(const Chain& chain) : chain_(chain), live_{"b0", "g" + std::to_string(chain.length())} {}

  // Returns the index of the first wrong action. If only the end is wrong, because other values
  // than the input and its gradient remain, returns the number of actions. Returns none if the
  // schedule is correct.
  std::optional<size_t> first_wrong(const std::vector<Action>& actions) {
    for (size_t n = 0; n < actions.size(); ++n) {
      if (!take(actions[n])) return n;
    }
    return live_ == std::set<std::string>{"b0", "g0"} ? std::nullopt : std::optional(actions.size());
  }

 private:
  static std::string name(char kind, int n) { return kind + std::to_string(n); }
  bool has(const std::string& what) const { return live_.count(what) != 0; }
  bool has_value(int n) const { return has(name('b', n)) || (n > 0 && has(name('t', n - 1))); }
  std::string residue_of(int link) const {
    for (int mode = 0; mode < static_cast<int>(chain_.links[0].residues.size()); ++mode) {
      if (has(name('r', link) + ":" + std::to_string(mode))) return name('r', link) + ":" + std::to_string(mode);
    }
    return "";
  }
  int deepest_on_disk() const {
    int deepest = 0;
    for (int n = 1; n <= chain_.length(); ++n) deepest = has(name('d', n)) ? n : deepest;
    return deepest;
  }

  bool take(const Action& action) {
    const int i = action.first, links = chain_.length();
    if (i < 0 || i > links || (i == links && action.kind != ActionKind::kDrop)) return false;
    switch (action.kind) {
      case ActionKind::kAdvance: {
        if (action.last <= i || action.last >= links || !has_value(i) || has_value(action.last)) return false;
        if (action.choice >= static_cast<int>(chain_.links[0].residues.size())) return false;
        for (int t = i; t < action.last; ++t) {
          const std::string held = residue_of(t), asked = name('r', t) + ":" + std::to_string(action.choice);
          if (has(name('t', t)) || (!held.empty() && held != asked)) return false;
        }
        for (int t = i; t < action.last && action.choice >= 0; ++t)
          live_.insert(name('r', t) + ":" + std::to_string(action.choice));
        live_.insert(name('b', action.last));
        return true;
      }
      case ActionKind::kRecord:
        if (action.choice < 0 || action.choice >= static_cast<int>(chain_.links[static_cast<size_t>(i)].tapes.size()))
          return false;
        if (!has_value(i) || has(name('t', i)) || has(name('b', i + 1))) return false;
        live_.insert(name('t', i));
        return true;
      case ActionKind::kBackward:
        if (!has(name('g', i + 1)) || !has(name('t', i)) || !has_value(i)) return false;
        live_.erase(name('g', i + 1)), live_.erase(name('t', i)), live_.erase(residue_of(i)),
            live_.insert(name('g', i));
        if (deepest_on_disk() == i) live_.erase(name('d', i));
        return true;
      case ActionKind::kDrop: return i > 0 && live_.erase(name('b', i)) == 1;
      case ActionKind::kWrite:
        if (i == 0 || !has(name('b', i)) || deepest_on_disk() >= i) return false;
        live_.insert(name('d', i));
        return true;
      case ActionKind::kRead:
        if (!has(name('d', i)) || has_value(i)) return false;
        live_.insert(name('b', i));
        return true;
    }
    return false;
  }

  const Chain& chain_;
  std::set<std::string> live_;
};

// The result of `schedule --check` for a file. `message` is empty unless the file is refused.
struct Verdict {
  std::string message;
  Simulation walked;
  size_t actions = 0;
};
Verdict check(const std::string& file, const Chain& chain, const DiskLevel& disk = {}) {
  try {
    const GivenSchedule given = read_given_schedule(file, chain);
    return {"", prove_given_schedule(file, chain, given, disk), given.texts.size()};
  } catch (const UserError& error) {
    return {error.what(), {}};
  }
}

TEST(GivenSchedule, WhatOurStrategiesWriteIsRightAndHasTheirPrice) {
  const TemporaryFolder folder;
  int checked = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Chain chain = random_chain(seed, 3 + static_cast<int>(seed % 9), static_cast<int>(seed % 3));
    const uint64_t maximum = make_schedule(chain, {.strategy = "none"}).peak_bytes,
                   minimum = make_schedule(chain, {.memory_bytes = 0}).smallest_memory;
    for (const std::string& strategy : strategy_names()) {
      const DiskLevel disk = {chooses_for_disk(strategy) ? uint64_t{1000} : 0, 0.5, 0.25};
      const Schedule plan =
          make_schedule(chain, {.strategy = strategy, .memory_bytes = minimum + (maximum - minimum) / 3, .disk = disk});
      if (!plan.feasible) continue;
      write_file(folder.file("actions.jsonl"), actions_as_jsonl(plan.actions));
      const Verdict verdict = check(folder.file("actions.jsonl"), chain, disk);
      EXPECT_EQ(verdict.message, "") << strategy << ", seed " << seed;
      EXPECT_EQ(verdict.walked.makespan, plan.makespan) << strategy;
      EXPECT_EQ(verdict.walked.peak_bytes, plan.peak_bytes) << strategy;
      EXPECT_EQ(verdict.walked.disk_bytes, plan.disk_bytes) << strategy;
      EXPECT_EQ(Judge(chain).first_wrong(plan.actions), std::nullopt) << strategy;
      ++checked;
    }
  }
  EXPECT_GT(checked, 100);
}

std::vector<Action> mutant_of(std::vector<Action> actions, std::mt19937_64& random) {
  const auto below = [&random](size_t count) { return random() % count; };
  const size_t n = below(actions.size());
  const auto at = actions.begin() + static_cast<std::ptrdiff_t>(n);
  switch (below(6)) {
    case 0: actions.erase(at); break;
    case 1: actions.insert(at, actions[n]); break;
    case 2: std::swap(actions[n], actions[below(actions.size())]); break;
    case 3: actions[n].first += below(2) == 0 ? 1 : -1; break;
    case 4:
      actions[n].kind == ActionKind::kAdvance ? actions[n].last += below(2) == 0 ? 1 : -1 : actions[n].first += 2;
      break;
    default: actions[n].choice += below(2) == 0 ? 1 : -1;
  }
  // Makes the mutant a schedule that a file can contain: indices are at least 0, and only an
  // advance may have the choice -1 (no residue).
  for (Action& action : actions) {
    action.first = std::max(action.first, 0);
    action.last = std::max(action.last, 0);
    if (action.kind == ActionKind::kAdvance) action.choice = std::max(action.choice, -1);
    else if (action.kind == ActionKind::kRecord) action.choice = std::max(action.choice, 0);
  }
  return actions;
}

TEST(GivenSchedule, EveryWrongOneIsRefusedWithTheNumberOfItsFirstWrongAction) {
  const TemporaryFolder folder;
  int wrong = 0, right = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    std::mt19937_64 random(seed);
    const Chain chain = random_chain(seed, 3 + static_cast<int>(seed % 9), static_cast<int>(seed % 3));
    const uint64_t maximum = make_schedule(chain, {.strategy = "none"}).peak_bytes,
                   minimum = make_schedule(chain, {.memory_bytes = 0}).smallest_memory;
    const DiskLevel disk = {1000, 0.5, 0.25};
    const Schedule plan = make_schedule(chain, {.strategy = seed % 2 == 0 ? "optimal" : "multistage",
                                                .memory_bytes = minimum + (maximum - minimum) * (seed % 4) / 5,
                                                .disk = seed % 2 == 0 ? DiskLevel{} : disk});
    if (!plan.feasible) continue;
    const std::vector<Action> mutant = mutant_of(plan.actions, random);
    if (mutant.empty()) continue;
    write_file(folder.file("actions.jsonl"), actions_as_jsonl(mutant));
    const std::optional<size_t> first = Judge(chain).first_wrong(mutant);
    const Verdict verdict = check(folder.file("actions.jsonl"), chain, disk);
    if (!first) {
      EXPECT_EQ(verdict.message, "") << "seed " << seed;
      EXPECT_NO_THROW(answer_check(chain, folder.file("actions.jsonl"), {}, disk,
                                   [](const Chain& c, const std::vector<Action>& actions) {
                                     const ChainLayout layout = layout_chain(c, actions);
                                     EXPECT_EQ(layout.packed_bytes, layout.peak_bytes);
                                     return LayoutFigures{layout.packed_bytes, layout.move_bytes};
                                   }))
          << "seed " << seed;
      ++right;
      continue;
    }
    ++wrong;
    const size_t number = std::min(*first, mutant.size() - 1);
    const std::string place =
        "actions.jsonl: action " + std::to_string(number) + " (line " + std::to_string(number + 1) + ", {";
    EXPECT_NE(verdict.message.find(place), std::string::npos) << "seed " << seed << ": " << verdict.message;
    EXPECT_EQ(verdict.message.find('\n'), std::string::npos);
  }
  std::printf("%d wrong, %d right\n", wrong, right);
  EXPECT_GT(wrong, 500);
  EXPECT_GT(right, 20);
}

TEST(GivenSchedule, LinesThatAreNoActions) {
  const TemporaryFolder folder;
  const Chain chain = unit_chain(3);
  const std::string first = "{\"action\": \"advance\", \"first\": 0, \"last\": 1}\n\n";
  for (const auto& [line, why] :
       std::vector<std::pair<std::string, std::string>>{{"{\"action\": \"fly\", \"link\": 1}", "action"},
                                                        {"{\"link\": 1}", "action"},
                                                        {"{\"action\": \"record\"}", "link"},
                                                        {"{\"action\": \"record\", \"link\": -1}", "link"},
                                                        {"{\"action\": \"record\", \"link\": 1, \"boundary\": 1}",
                                                         "boundary"},
                                                        {"{\"action\": \"record\", \"link\": 1.5}", "link"},
                                                        {"{\"action\"", "action 1"},
                                                        {"record 1", "JSON"}}) {
    write_file(folder.file("a.jsonl"), first + line + "\n");
    const Verdict verdict = check(folder.file("a.jsonl"), chain);
    EXPECT_NE(verdict.message.find("a.jsonl: action 1 (line 3, "), std::string::npos) << verdict.message;
    EXPECT_NE(verdict.message.find(why), std::string::npos) << verdict.message;
  }
  for (const auto& [line, why] : std::vector<std::pair<std::string, std::string>>{
           {"Forward(0, 4, False, False, StorageType.WORK)", "from 0 to 3"},
           {"Forward(0, 1, 2, False, StorageType.WORK)", "True or False"},
           {"Forward(0, 1, True, False)", "5 arguments"},
           {"Copy(1, StorageType.TAPE, StorageType.WORK)", "TAPE"},
           {"Copy(2, StorageType.RAM, StorageType.WORK)", "no forward has stored"},
           {"Jump(1)", "EndForward"},
           {"Reverse(1, 2, True)", "goes back"},
           {"Reverse(3, 2, False)", "keeps"},
           {"Forward(0, 1", "neither"}}) {
    write_file(folder.file("a.txt"), "Forward(0, 1, True, False, StorageType.RAM)\n" + line + "\n");
    const Verdict verdict = check(folder.file("a.txt"), chain);
    EXPECT_NE(verdict.message.find("a.txt: action 1 (line 2, "), std::string::npos) << verdict.message;
    EXPECT_NE(verdict.message.find(why), std::string::npos) << verdict.message;
  }
  write_file(folder.file("none.txt"), "\n");
  EXPECT_NE(check(folder.file("none.txt"), chain).message.find("has no actions"), std::string::npos);
}

// Texts that checkpoint_schedules 1.0 printed for Revolve(6, 2), HRevolve(7, 1, 2, wd=0.5, rd=0.5)
// and MixedCheckpointSchedule(5, 2, storage=RAM).
constexpr const char* kRevolve = R"(Forward(0, 3, True, False, StorageType.RAM)
Forward(3, 5, True, False, StorageType.RAM)
Forward(5, 6, False, True, StorageType.WORK)
EndForward()
Reverse(6, 5, True)
Copy(3, StorageType.RAM, StorageType.WORK)
Forward(3, 4, False, False, StorageType.WORK)
Forward(4, 5, False, True, StorageType.WORK)
Reverse(5, 4, True)
Move(3, StorageType.RAM, StorageType.WORK)
Forward(3, 4, False, True, StorageType.WORK)
Reverse(4, 3, True)
Copy(0, StorageType.RAM, StorageType.WORK)
Forward(0, 1, False, False, StorageType.WORK)
Forward(1, 2, True, False, StorageType.RAM)
Forward(2, 3, False, True, StorageType.WORK)
Reverse(3, 2, True)
Move(1, StorageType.RAM, StorageType.WORK)
Forward(1, 2, False, True, StorageType.WORK)
Reverse(2, 1, True)
Move(0, StorageType.RAM, StorageType.WORK)
Forward(0, 1, False, True, StorageType.WORK)
Reverse(1, 0, True)
EndReverse()
)";
constexpr const char* kHRevolve = R"(Forward(0, 2, True, False, <StorageType.DISK: 1>)
Forward(2, 4, True, False, <StorageType.DISK: 1>)
Forward(4, 6, True, False, <StorageType.RAM: 0>)
Forward(6, 7, False, True, <StorageType.WORK: -1>)
EndForward()
Reverse(7, 6, True)
Copy(4, <StorageType.RAM: 0>, <StorageType.WORK: -1>)
Forward(4, 5, False, False, <StorageType.WORK: -1>)
Forward(5, 6, False, True, <StorageType.WORK: -1>)
Reverse(6, 5, True)
Move(4, <StorageType.RAM: 0>, <StorageType.WORK: -1>)
Forward(4, 5, False, True, <StorageType.WORK: -1>)
Reverse(5, 4, True)
Copy(2, <StorageType.DISK: 1>, <StorageType.WORK: -1>)
Forward(2, 3, True, False, <StorageType.RAM: 0>)
Forward(3, 4, False, True, <StorageType.WORK: -1>)
Reverse(4, 3, True)
Move(2, <StorageType.RAM: 0>, <StorageType.WORK: -1>)
Forward(2, 3, False, True, <StorageType.WORK: -1>)
Reverse(3, 2, True)
Copy(0, <StorageType.DISK: 1>, <StorageType.WORK: -1>)
Forward(0, 1, True, False, <StorageType.RAM: 0>)
Forward(1, 2, False, True, <StorageType.WORK: -1>)
Reverse(2, 1, True)
Move(0, <StorageType.RAM: 0>, <StorageType.WORK: -1>)
Forward(0, 1, False, True, <StorageType.WORK: -1>)
Reverse(1, 0, True)
EndReverse()
)";
constexpr const char* kMixed = R"(Forward(0, 3, True, False, StorageType.RAM)
Forward(3, 4, False, True, StorageType.RAM)
Forward(4, 5, False, True, StorageType.WORK)
EndForward()
Reverse(5, 4, True)
Move(3, StorageType.RAM, StorageType.WORK)
Reverse(4, 3, True)
Move(0, StorageType.RAM, StorageType.WORK)
Forward(0, 1, False, True, StorageType.RAM)
Forward(1, 2, False, True, StorageType.RAM)
Forward(2, 3, False, True, StorageType.WORK)
Reverse(3, 2, True)
Move(1, StorageType.RAM, StorageType.WORK)
Reverse(2, 1, True)
Move(0, StorageType.RAM, StorageType.WORK)
Reverse(1, 0, True)
EndReverse()
)";

// The makespans are counted by hand: the forward of a step costs 1 and the backward 2. HRevolve
// writes step 2 to disk once and reads it once. It also writes and reads step 0, but here step 0 is
// the input, which always stays in memory.
TEST(GivenSchedule, ActionsOfCheckpointSchedules) {
  const TemporaryFolder folder;
  for (const auto& [text, links, makespan, disk_bytes, peak_bytes] :
       std::vector<std::tuple<const char*, int, double, uint64_t, uint64_t>>{{kRevolve, 6, 14 + 6 * 2, 0, 15},
                                                                             {kHRevolve, 7, 16 + 7 * 2 + 1, 1, 15},
                                                                             {kMixed, 5, 8 + 5 * 2, 0, 33}}) {
    write_file(folder.file("a.txt"), text);
    const Verdict verdict = check(folder.file("a.txt"), unit_chain(links), {10, 0.5, 0.5});
    EXPECT_EQ(verdict.message, "");
    EXPECT_EQ(verdict.walked.makespan, makespan);
    EXPECT_EQ(verdict.walked.disk_bytes, disk_bytes);
    EXPECT_EQ(verdict.walked.peak_bytes, peak_bytes);
    // Without any one of its lines, except the End lines, the schedule must be refused. If a
    // Forward or Reverse line is doubled, it must also be refused.
    std::vector<std::string> lines;
    for (size_t at = 0, end; (end = std::string(text).find('\n', at)) != std::string::npos; at = end + 1)
      lines.push_back(std::string(text).substr(at, end - at + 1));
    for (size_t n = 0; n < lines.size(); ++n) {
      if (lines[n].starts_with("End")) continue;
      std::string without, twice;
      for (size_t m = 0; m < lines.size(); ++m) {
        if (m != n) without += lines[m];
        twice += m == n ? lines[m] + lines[m] : lines[m];
      }
      write_file(folder.file("a.txt"), without);
      EXPECT_NE(check(folder.file("a.txt"), unit_chain(links)).message, "") << "without " << lines[n];
      if (lines[n].starts_with("Forward") || lines[n].starts_with("Reverse")) {
        write_file(folder.file("a.txt"), twice);
        EXPECT_NE(check(folder.file("a.txt"), unit_chain(links)).message, "") << "twice " << lines[n];
      }
    }
  }
}

}  // namespace
}  // namespace reprise
