// Tests strategies on chains of unequal links: goldens, random chains, an exhaustive judge, chain
// files, and the command's output. A schedule that claims too little memory or time would otherwise
// fail only on the board. The judge searches states instead of using a recursion. It shares no code
// with the strategies and counts memory and time itself.
#include "tools/plan/schedule/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <map>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "tests/schedule_goldens.h"
#include "tools/files/io/error.h"
#include "tools/plan/schedule/chain_json.h"
#include "tools/plan/schedule/schedule_command.h"
#include "tools/plan/schedule/simulate.h"
#include "tools/plan/schedule/units.h"

namespace reprise {
namespace {

struct ChainShape {
  int max_links = 8, max_tapes = 1, modes = 0;
  // Each size is factor * (a random number up to max_bytes) + (a random number up to jitter).
  uint64_t max_bytes = 6, factor = 1, jitter = 0;
  uint64_t max_scratch = 3;
  bool record_costs = false;  // true: recording a tape from a residue has another cost than a forward from it
  bool unions = false;        // true: small tapes have values in common with residues
};

Chain random_chain(uint64_t seed, const ChainShape& shape) {
  std::mt19937_64 random(seed);
  const auto upto = [&](uint64_t maximum) { return random() % (maximum + 1); };
  const auto bytes = [&](uint64_t maximum) { return shape.factor * upto(maximum) + upto(shape.jitter); };
  Chain chain{.input_bytes = bytes(shape.max_bytes), .links = {}};
  const int length = 1 + static_cast<int>(upto(shape.max_links - 1));
  for (int i = 0; i < length; ++i) {
    Link link{.name = "r" + std::to_string(i), .forward_cost = static_cast<double>(1 + upto(9)), .boundary_bytes = 0,
              .forward_scratch_bytes = bytes(shape.max_scratch), .tapes = {}, .residues = {}};
    if (i + 1 < length) link.boundary_bytes = shape.factor + bytes(shape.max_bytes);
    uint64_t inner = bytes(2 * shape.max_bytes);
    for (int k = 0; k < shape.modes; ++k) {
      const uint64_t part = inner == 0 ? 0 : upto(inner);
      link.residues.push_back(
          {.bytes = part, .forward_cost = std::max(0.0, link.forward_cost - static_cast<double>(upto(5)))});
    }
    double backward = static_cast<double>(1 + upto(12));
    for (uint64_t t = 0; t <= upto(shape.max_tapes - 1); ++t) {
      link.tapes.push_back({.bytes = link.boundary_bytes + inner,
                            .backward_cost = backward,
                            .scratch_bytes = bytes(shape.max_scratch),
                            .forward_scratch_bytes = t == 0 ? link.forward_scratch_bytes : bytes(shape.max_scratch)});
      inner /= 2;
      backward += static_cast<double>(upto(4));
    }
    for (Residue& residue : link.residues) {
      const auto saved = static_cast<uint64_t>(link.forward_cost - residue.forward_cost);
      for (size_t t = 0; shape.record_costs && t < link.tapes.size(); ++t) {
        residue.record_costs.push_back(link.forward_cost - static_cast<double>(upto(saved)));
      }
      for (size_t t = 0; shape.unions && t < link.tapes.size(); ++t) {
        const uint64_t minimum = std::max(link.tapes[t].bytes, link.boundary_bytes + residue.bytes);
        residue.tape_bytes.push_back(minimum + (t == 0 ? 0 : upto(link.tapes[t].bytes + residue.bytes - minimum)));
      }
    }
    chain.links.push_back(link);
  }
  return chain;
}

uint64_t peak_of_none(const Chain& chain) { return make_schedule(chain, {.strategy = "none"}).peak_bytes; }

double solve(const Chain& chain, uint64_t memory_bytes, bool residues) {
  const Schedule plan = make_schedule(chain, {.memory_bytes = memory_bytes, .unit = 1, .residues = residues});
  if (plan.feasible) {
    EXPECT_LE(plan.peak_bytes, memory_bytes);
  }
  return plan.feasible ? plan.makespan : INFINITY;
}

TEST(Optimal, GoldenWithoutResidues) {
  const Chain chain = golden_chain();
  EXPECT_EQ(solve(chain, 16, false), INFINITY);
  const std::map<uint64_t, double> golden = {{18, 80}, {20, 74}, {22, 71}, {26, 68}, {28, 66}, {32, 63}};
  for (const auto& [memory, makespan] : golden) EXPECT_EQ(solve(chain, memory, false), makespan) << "M = " << memory;
}

TEST(Optimal, GoldenWithResidues) {
  const Chain chain = golden_chain();
  EXPECT_EQ(solve(chain, 16, true), INFINITY);
  const std::map<uint64_t, double> golden = {{18, 77}, {20, 70}, {22, 66}, {26, 65}, {28, 64}, {32, 62}};
  for (const auto& [memory, makespan] : golden) EXPECT_EQ(solve(chain, memory, true), makespan) << "M = " << memory;
}

TEST(Optimal, GoldenNamesTheSmallestMemory) {
  const Schedule plan = make_schedule(golden_chain(), {.memory_bytes = 16});
  EXPECT_FALSE(plan.feasible);
  EXPECT_TRUE(plan.actions.empty());
  EXPECT_EQ(plan.smallest_memory, 18u);
}

// A state of the judge: the index of the live gradient, and the values that are live for each link.
struct State {
  int gradient;
  std::vector<char> value;  // true if the boundary is kept outside a tape
  std::vector<char> tape, residue;  // 0: none; otherwise 1 + the index of the tape or residue
  auto operator<=>(const State&) const = default;
};

// Finds the minimum makespan over all orders of forwards, recordings, backwards and frees. Uses
// Dijkstra's algorithm over states.
class Judge {
 public:
  Judge(const Chain& chain, uint64_t memory_bytes, bool residues)
      : chain_(chain), memory_(memory_bytes), residues_(residues) {}

  double min_makespan() {
    const int n = chain_.length();
    State start{n, std::vector<char>(n + 1, 0), std::vector<char>(n, 0), std::vector<char>(n, 0)};
    start.value[0] = 1;
    offer(start, 0);
    while (!queue_.empty()) {
      const auto [cost, state] = queue_.top();
      queue_.pop();
      if (cost > best_[state]) continue;
      if (state.gradient == 0) return cost;
      expand(state, cost);
    }
    return INFINITY;
  }

 private:
  using Entry = std::pair<double, State>;

  uint64_t tape_size(int i, int t, int r) const {
    const uint64_t own = chain_.links[i].tapes[t].bytes;
    if (r > 0 && !chain_.links[i].residues[r - 1].tape_bytes.empty())
      return chain_.links[i].residues[r - 1].tape_bytes[t];
    return r > 0 && t > 0 ? own + chain_.links[i].residues[r - 1].bytes : own;
  }
  uint64_t live(const State& s) const {
    uint64_t sum = chain_.boundary_bytes(s.gradient);
    for (int i = 0; i < chain_.length(); ++i) {
      sum += s.value[i] ? chain_.boundary_bytes(i) : 0;
      if (s.tape[i]) sum += tape_size(i, s.tape[i] - 1, s.residue[i]);
      else if (s.residue[i]) sum += chain_.links[i].residues[s.residue[i] - 1].bytes;
    }
    return sum;
  }
  void offer(const State& s, double cost) {
    const auto [place, fresh] = best_.try_emplace(s, cost);
    if (!fresh && place->second <= cost) return;
    place->second = cost;
    queue_.push({cost, s});
  }
  void expand(const State& s, double cost) {
    for (int i = 1; i < chain_.length(); ++i) {
      State freed = s;
      freed.value[i] = 0;
      if (s.value[i]) offer(freed, cost);
    }
    for (int i = 0; i < s.gradient; ++i) {
      if (s.value[i] || (i > 0 && s.tape[i - 1])) expand_link(s, cost, i);
    }
  }
  void expand_link(const State& s, double cost, int i) {
    const Link& link = chain_.links[i];
    const double forward = s.residue[i] ? link.residues[s.residue[i] - 1].forward_cost : link.forward_cost;
    if (i + 1 < chain_.length() && !s.value[i + 1] && !s.tape[i]) {
      const int modes = residues_ && !s.residue[i] ? static_cast<int>(link.residues.size()) : 0;
      for (int r = 0; r <= modes; ++r) {
        State after = s;
        after.value[i + 1] = 1;
        if (r > 0) after.residue[i] = static_cast<char>(r);
        if (live(after) + link.forward_scratch_bytes <= memory_) offer(after, cost + forward);
      }
    }
    for (int t = 0; t < static_cast<int>(link.tapes.size()) && !s.tape[i] && !s.value[i + 1]; ++t) {
      State after = s;
      after.tape[i] = static_cast<char>(t + 1);
      double record = forward;
      if (s.residue[i] && !link.residues[s.residue[i] - 1].record_costs.empty())
        record = link.residues[s.residue[i] - 1].record_costs[t];
      if (live(after) + link.tapes[t].forward_scratch_bytes <= memory_) offer(after, cost + record);
    }
    if (s.tape[i] && s.gradient == i + 1) {
      const Tape& tape = link.tapes[s.tape[i] - 1];
      if (live(s) + chain_.boundary_bytes(i) + tape.scratch_bytes > memory_) return;
      State after = s;
      after.tape[i] = after.residue[i] = 0;
      after.gradient = i;
      offer(after, cost + tape.backward_cost);
    }
  }

  const Chain& chain_;
  uint64_t memory_;
  bool residues_;
  std::map<State, double> best_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

// Compares `optimal` with the judge. The published recursion is optimal among the schedules that
// never drop kept values. So the judge may find a smaller makespan, but never a larger one. At
// least the share `min_share_equal` of the makespans must be equal.
void judge_random_chains(uint64_t seeds, const ChainShape& shape, bool residues, double min_share_equal) {
  int cases = 0, equal = 0;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const Chain chain = random_chain(seed, shape);
    const uint64_t smallest = make_schedule(chain, {.memory_bytes = 0}).smallest_memory;
    ASSERT_EQ(solve(chain, smallest - 1, residues), INFINITY) << "seed " << seed;
    for (uint64_t memory = smallest; memory <= peak_of_none(chain) + 1; memory += 1 + seed % 3) {
      const double claimed = solve(chain, memory, residues);
      const double minimum = Judge(chain, memory, residues).min_makespan();
      ASSERT_LT(claimed, INFINITY) << "seed " << seed << ", M = " << memory;
      ASSERT_GE(claimed, minimum) << "seed " << seed << ", M = " << memory;
      ++cases;
      equal += claimed == minimum;
    }
  }
  EXPECT_GT(cases, 0);
  EXPECT_GE(equal, min_share_equal * cases) << "of " << cases;
}

TEST(Optimal, NeverClaimsLessThanTheJudge) { judge_random_chains(150, {.max_links = 5}, false, 0.7); }
TEST(Optimal, NeverClaimsLessThanTheJudgeSeveralTapes) {
  judge_random_chains(60, {.max_links = 4, .max_tapes = 3}, false, 0.7);
}
// `optimal` may also keep a tape while it recomputes the input of the tape's link. Without
// residues, nearly every makespan then equals the true minimum.
TEST(Optimal, NeverClaimsLessThanTheJudgeKeptTapes) { judge_random_chains(120, {.max_links = 5}, true, 0.98); }
TEST(Optimal, NeverClaimsLessThanTheJudgeKeptTapesWideScratch) {
  judge_random_chains(60, {.max_links = 5, .max_scratch = 40}, true, 0.95);
}
TEST(Optimal, NeverClaimsLessThanTheJudgeResidues) {
  judge_random_chains(40, {.max_links = 4, .max_tapes = 2, .modes = 2, .max_bytes = 4}, true, 0.6);
}

TEST(Optimal, NeverClaimsLessThanTheJudgeWideScratch) {
  judge_random_chains(15, {.max_links = 3, .max_tapes = 2, .modes = 2, .max_scratch = 20, .record_costs = true},
                      true, 0.6);
}

TEST(Optimal, NeverClaimsLessThanTheJudgeTapesThatShareWithResidues) {
  judge_random_chains(30, {.max_links = 4, .max_tapes = 3, .modes = 2, .max_bytes = 4, .unions = true}, true, 0.6);
}

// Here a forward may need more scratch than a recording of a tape. So an advance may fit although a
// longer one does not. An advance that stores residues may need less memory than the minimum that
// `optimal` assumes.
TEST(Optimal, WideScratchAtEveryBudget) {
  for (uint64_t seed = 7000; seed < 7600; ++seed) {
    const Chain chain = random_chain(seed, {.max_links = 5,
                                            .max_tapes = 3,
                                            .modes = static_cast<int>(seed % 4),
                                            .max_scratch = 40,
                                            .record_costs = seed % 8 > 3,
                                            .unions = seed % 16 > 7});
    const Schedule none = make_schedule(chain, {.strategy = "none"});
    const uint64_t smallest = make_schedule(chain, {.memory_bytes = 0}).smallest_memory;
    ASSERT_LE(smallest, none.peak_bytes) << "seed " << seed;
    ASSERT_EQ(solve(chain, smallest - 1, true), INFINITY) << "seed " << seed << ", smallest " << smallest;
    double before = INFINITY;
    for (uint64_t memory = smallest; memory <= none.peak_bytes + 2; ++memory) {
      const double makespan = solve(chain, memory, true);
      ASSERT_LT(makespan, INFINITY) << "seed " << seed << ", M = " << memory;
      ASSERT_LE(makespan, before) << "seed " << seed << ", M = " << memory;
      ASSERT_LE(makespan, solve(chain, memory, false)) << "seed " << seed << ", M = " << memory;
      before = makespan;
    }
    ASSERT_LE(before, none.makespan) << "seed " << seed;
  }
}

TEST(Strategies, RandomChainsFitAndOptimalIsBest) {
  for (uint64_t seed = 1000; seed < 1080; ++seed) {
    const Chain chain = random_chain(seed, {.max_links = 16, .max_tapes = 3, .modes = static_cast<int>(seed % 3),
                                            .unions = seed % 2 == 0});
    const uint64_t maximum = peak_of_none(chain);
    double before = INFINITY;
    for (uint64_t memory = 0; memory <= maximum + 2; memory += 1 + maximum / 40) {
      const double optimal = solve(chain, memory, true);
      ASSERT_LE(optimal, solve(chain, memory, false)) << "seed " << seed << ", M = " << memory;
      ASSERT_LE(optimal, before) << "seed " << seed << ", M = " << memory;
      before = optimal;
      for (const std::string& name : strategy_names()) {
        const Schedule plan = make_schedule(chain, {.strategy = name, .memory_bytes = memory});
        if (!plan.feasible) continue;
        const Simulation walked = simulate(chain, plan.actions);
        ASSERT_TRUE(walked.valid) << name << ", seed " << seed << ", M = " << memory << ": " << walked.fault;
        ASSERT_EQ(walked.makespan, plan.makespan) << name << ", seed " << seed << ", M = " << memory;
        ASSERT_LE(walked.peak_bytes, memory) << name << ", seed " << seed << ", M = " << memory;
        ASSERT_LE(optimal, plan.makespan) << name << ", seed " << seed << ", M = " << memory;
      }
    }
    const double store_all = make_schedule(chain, {.strategy = "none"}).makespan;
    ASSERT_LE(make_schedule(chain, {}).makespan, store_all) << "seed " << seed;
  }
}

// With more memory a strategy must not be slower: it chooses its own parameter, and may choose the
// one for the smaller budget.
TEST(Strategies, MoreMemoryNeverCostsTime) {
  for (uint64_t seed = 5000; seed < 5300; ++seed) {
    const Chain chain = random_chain(seed, {.max_links = 24, .max_tapes = 2, .modes = static_cast<int>(seed % 2)});
    const uint64_t maximum = peak_of_none(chain);
    for (const std::string& name : strategy_names()) {
      // Other tests, named Optimal, test these two strategies at every budget.
      if ((name == "optimal" || name == "h-revolve") && seed % 20 != 0) continue;
      double before = INFINITY;
      for (uint64_t memory = 0; memory <= maximum + 2; memory += 1 + maximum / 60) {
        const Schedule plan = make_schedule(chain, {.strategy = name, .memory_bytes = memory});
        ASSERT_TRUE(plan.feasible || before == INFINITY) << name << ", seed " << seed << ", M = " << memory;
        if (!plan.feasible) continue;
        ASSERT_LE(plan.makespan, before) << name << ", seed " << seed << ", M = " << memory;
        before = plan.makespan;
      }
    }
  }
}

// The sizes are not multiples of a unit, so `optimal` chooses a unit and rounds. Plans must fit in
// bytes, must not be slower than those of other strategies, and must not be slower with more
// memory.
TEST(Optimal, ChosenUnitsKeepTheBudget) {
  for (uint64_t seed = 2000; seed < 2004; ++seed) {
    const Chain chain = random_chain(seed, {.max_links = 16,
                                            .max_tapes = 2,
                                            .modes = static_cast<int>(seed % 2),
                                            .max_bytes = 8,
                                            .factor = 1 << 20,
                                            .jitter = seed % 3 == 0 ? 1u << 19 : 512});
    const uint64_t maximum = peak_of_none(chain);
    const uint64_t smallest = make_schedule(chain, {.memory_bytes = 0}).smallest_memory;
    double before = INFINITY;
    for (uint64_t memory :
         {smallest, smallest + maximum / 50, maximum / 4 + smallest / 2, maximum / 2 + smallest / 4, maximum}) {
      const Schedule plan = make_schedule(chain, {.memory_bytes = memory});
      if (memory < smallest) continue;
      ASSERT_TRUE(plan.feasible) << "seed " << seed << ", M = " << memory << ", smallest " << smallest;
      ASSERT_LE(plan.peak_bytes, memory) << "seed " << seed;
      for (const std::string& name : strategy_names()) {
        const Schedule other = make_schedule(chain, {.strategy = name, .memory_bytes = memory});
        if (!other.feasible) continue;
        ASSERT_LE(plan.makespan, other.makespan) << name << ", seed " << seed << ", M = " << memory;
      }
      ASSERT_LE(plan.makespan, before) << "seed " << seed << ", M = " << memory;
      before = plan.makespan;
    }
  }
}

// The chain has 200 links, but one pass stores residues of at most kMaxLaid links (recursion.h).
// The larger memories suffice for the residues of nearly all links.
TEST(Optimal, ManyLinksWithResidues) {
  Chain chain{.input_bytes = 4, .links = {}};
  for (uint64_t i = 0; i < 200; ++i) {
    chain.links.push_back(
        {.name = "many",
         .forward_cost = 17,
         .boundary_bytes = i + 1 < 200 ? 4u : 0u,
         .forward_scratch_bytes = 0,
         .tapes = {{.bytes = i + 1 < 200 ? 12u : 8u, .backward_cost = 34}},
         .residues = {{.bytes = 1, .forward_cost = 8}, {.bytes = 2, .forward_cost = 4 + static_cast<double>(i % 2)}}});
  }
  double before = INFINITY;
  for (const uint64_t memory : {60u, 150u, 300u, 450u, 600u, 1200u, 2500u}) {
    const double with = solve(chain, memory, true);
    EXPECT_LE(with, solve(chain, memory, false)) << "M = " << memory;
    EXPECT_LE(with, before) << "M = " << memory;
    before = with;
  }
  EXPECT_EQ(before, 200 * 51) << "everything fits";
  EXPECT_LT(solve(chain, 600, true), 0.93 * solve(chain, 600, false));  // nearly every link keeps 2 bytes of residue
}

// The unit is proportional to the next power of two of the budget. So just above a power of two the
// unit doubles, and rounding must not cost more time than the additional memory saves.
TEST(Optimal, ChosenUnitsNeverReverseAcrossPowersOfTwo) {
  for (uint64_t seed = 2100; seed < 2103; ++seed) {
    Chain chain{.input_bytes = 1 << 20, .links = {}};
    for (uint64_t part = 0; part < 5; ++part) {
      const Chain piece = random_chain(
          100 * seed + part,
          {.max_links = 12, .max_tapes = 2, .modes = 1, .max_bytes = 8, .factor = 1 << 20, .jitter = 1 << 19});
      chain.links.insert(chain.links.end(), piece.links.begin(), piece.links.end() - (part < 4 ? 1 : 0));
    }
    const uint64_t smallest = make_schedule(chain, {.memory_bytes = 0}).smallest_memory, maximum = peak_of_none(chain);
    double before = INFINITY;
    for (uint64_t level = std::bit_ceil(smallest); level <= maximum; level *= 2) {
      for (uint64_t memory : {level, level + 1, level + level / 10, level + level / 3}) {
        const Schedule plan = make_schedule(chain, {.memory_bytes = memory});
        ASSERT_TRUE(plan.feasible) << "seed " << seed << ", M = " << memory;
        ASSERT_LE(plan.makespan, before * (1 + 1e-6)) << "seed " << seed << ", M = " << memory;  // tables may be floats
        before = plan.makespan;
      }
    }
  }
}

// Returns the links of `source`, cut into parts of `part` links, with each part repeated `times`
// times.
Chain with_repeated_parts(const Chain& source, size_t part, uint64_t times) {
  Chain chain{.input_bytes = source.input_bytes, .links = {}};
  const auto loss = source.links.end() - 1;
  for (auto first = source.links.begin(); first < loss;) {
    const auto behind = first + std::min(static_cast<std::ptrdiff_t>(part), loss - first);
    for (uint64_t n = 0; n < times; ++n) chain.links.insert(chain.links.end(), first, behind);
    first = behind;
  }
  chain.links.push_back(*loss);
  return chain;
}

// Equal ranges of links share rows of the planner's tables. If the costs of the links differ by a
// billionth, no rows are shared, but the makespans must be the same.
TEST(Optimal, RepeatedLinksChangeNothing) {
  for (uint64_t seed = 4000; seed < 4060; ++seed) {
    const Chain source = random_chain(seed, {.max_links = 6, .max_tapes = 2, .modes = static_cast<int>(seed % 3)});
    const Chain repeated = with_repeated_parts(source, 1 + seed % 4, 1 + seed % 7);
    Chain apart = repeated;
    for (int i = 0; i < apart.length(); ++i) apart.links[i].forward_cost += 1e-9 * i;
    const uint64_t smallest = make_schedule(repeated, {.memory_bytes = 0}).smallest_memory,
                   maximum = peak_of_none(repeated);
    ASSERT_EQ(make_schedule(apart, {.memory_bytes = 0}).smallest_memory, smallest) << "seed " << seed;
    for (uint64_t memory = smallest; memory <= maximum; memory += 1 + (maximum - smallest) / 6) {
      ASSERT_NEAR(solve(repeated, memory, true), solve(apart, memory, true), 1e-3)
          << "seed " << seed << ", M = " << memory;
    }
  }
}

// In the chain a (bc)(bc)(bc)(bc) d, shift() returns the distance of a range to the last equal
// range, which represents it.
TEST(Optimal, FindsWhatRepeatsItself) {
  Chain chain = random_chain(1, {.max_links = 1});
  chain.links.assign(10, chain.links[0]);
  for (int i = 0; i < 10; ++i) chain.links[i].forward_cost = i == 0 ? 1 : i == 9 ? 4 : 2 + i % 2;
  chain.links[0].boundary_bytes = chain.links[1].boundary_bytes;
  for (int i = 0; i < 9; ++i) chain.links[i].boundary_bytes = 64;
  const UnitChain units = chain_in_units(chain, {});
  EXPECT_EQ(units.shift(1, 2), 6);
  EXPECT_EQ(units.shift(2, 3), 4);
  EXPECT_EQ(units.shift(1, 6), 2);
  EXPECT_EQ(units.shift(1, 8), 0);
  EXPECT_EQ(units.shift(7, 8), 0);
  EXPECT_EQ(units.shift(0, 1), 0);
  EXPECT_EQ(units.shift(1, 9), 0);
}

// For more than 4096 links, tables of all pairs of links would not fit a small machine, so
// `optimal` refuses them. `none`, which stores everything, needs no table.
TEST(Optimal, RefusesChainsThatAreTooLong) {
  Chain chain{.input_bytes = 4, .links = {}};
  for (int i = 0; i < 4097; ++i) {
    chain.links.push_back({.name = "many",
                           .forward_cost = 1,
                           .boundary_bytes = i < 4096 ? 4u : 0u,
                           .forward_scratch_bytes = 0,
                           .tapes = {{.bytes = i < 4096 ? 8u : 4u, .backward_cost = 2}},
                           .residues = {}});
  }
  for (const char* strategy : {"optimal", "h-revolve"}) {
    try {
      (void)make_schedule(chain, {.strategy = strategy, .memory_bytes = 400});
      FAIL() << strategy;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("at most 4096 links, not 4097"), std::string::npos) << error.what();
    }
  }
  EXPECT_TRUE(make_schedule(chain, {.strategy = "revolve", .memory_bytes = 400}).feasible);
}

TEST(Simulate, RejectsEveryPlanWithOneActionLeftOut) {
  for (uint64_t seed = 3000; seed < 3040; ++seed) {
    const Chain chain = random_chain(seed, {.max_tapes = 2, .modes = 1});
    const uint64_t smallest = make_schedule(chain, {.memory_bytes = 0}).smallest_memory;
    const std::vector<Action> actions = make_schedule(chain, {.memory_bytes = smallest}).actions;
    for (size_t n = 0; n < actions.size(); ++n) {
      std::vector<Action> mutant = actions;
      mutant.erase(mutant.begin() + static_cast<std::ptrdiff_t>(n));
      ASSERT_FALSE(simulate(chain, mutant).valid) << "seed " << seed << ", without action " << n;
    }
  }
}

TEST(Simulate, CountsByHand) {
  Chain chain{.input_bytes = 10, .links = {}};
  chain.links.push_back({.name = "a",
                         .forward_cost = 1,
                         .boundary_bytes = 20,
                         .forward_scratch_bytes = 5,
                         .tapes = {{.bytes = 27, .backward_cost = 3, .scratch_bytes = 4, .forward_scratch_bytes = 6}},
                         .residues = {}});
  chain.links.push_back({.name = "b",
                         .forward_cost = 2,
                         .boundary_bytes = 0,
                         .forward_scratch_bytes = 7,
                         .tapes = {{.bytes = 1, .backward_cost = 5, .scratch_bytes = 9, .forward_scratch_bytes = 2}},
                         .residues = {}});
  const Schedule store_all = make_schedule(chain, {.strategy = "none"});
  EXPECT_EQ(store_all.makespan, 11);
  // The peak is in the backward of a: input, tape, gradient, new gradient, scratch.
  EXPECT_EQ(store_all.peak_bytes, 10u + 27 + 20 + 10 + 4);
  const Schedule each = make_schedule(chain, {.strategy = "every-k", .k = 1});
  EXPECT_EQ(each.makespan, 12);
  EXPECT_EQ(each.peak_bytes, 10u + 27 + 20 + 10 + 4);
  chain.links[1].tapes[0].scratch_bytes = 900;
  EXPECT_EQ(make_schedule(chain, {.strategy = "none"}).peak_bytes, 10u + 27 + 1 + 20 + 900);     // in the backward of b
  EXPECT_EQ(make_schedule(chain, {.strategy = "every-k", .k = 1}).peak_bytes, 10u + 20 + 1 + 20 + 900);
  chain.links[0].forward_scratch_bytes = 5000;
  EXPECT_EQ(make_schedule(chain, {.strategy = "none"}).peak_bytes, 10u + 27 + 1 + 20 + 900);
  // The peak is in the advance over a.
  EXPECT_EQ(make_schedule(chain, {.strategy = "every-k", .k = 1}).peak_bytes, 10u + 20 + 5000);
}

std::string refusal(const ScheduleRequest& request) {
  try {
    make_schedule(golden_chain(), request);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(Strategies, RefusesUnknownNamesAndForeignParameters) {
  EXPECT_NE(refusal({.strategy = "optimall"}).find("optimall"), std::string::npos);
  EXPECT_NE(refusal({.strategy = "none", .k = 3}).find("takes no k"), std::string::npos);
  EXPECT_NE(refusal({.strategy = "sqrt", .k = -3}).find("at least 1"), std::string::npos);
  EXPECT_NE(refusal({.strategy = "none", .slots = 3}).find("takes no slots"), std::string::npos);
  EXPECT_THROW(make_schedule({}, {}), UserError);
}

TEST(ChainJson, RoundTrip) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Chain chain =
        random_chain(seed, {.max_tapes = 3, .modes = 2, .record_costs = seed % 2 == 0, .unions = seed % 3 == 0});
    const auto written = chain_to_json(chain);
    const Chain again = chain_from_json(nlohmann::json::parse(written.dump()), "again");
    EXPECT_EQ(chain_to_json(again), written) << "seed " << seed;
  }
}

// Each case replaces one value in the JSON of the golden chain. The refusal must name the field and
// what would be right.
TEST(ChainJson, RefusesBadChainsByField) {
  struct Case {
    const char *pointer, *value, *field, *right;
  };
  const Case cases[] = {
      {"/input_bytes", "-1", "input_bytes", "integer from 0"},
      {"/input_bytes", "1e30", "input_bytes", "integer from 0"},
      {"/input_bytes", "18446744073709551615", "input_bytes", "integer from 0"},
      {"/input_bytes", "null", "input_bytes", "integer from 0"},
      {"/links", "[]", "links", "from 1 to"},
      {"/links", "7", "links", "a list"},
      {"/links/2", "[]", "links[2]", "an object"},
      {"/links/2/forward_cost", "-0.5", "links[2].forward_cost", "number from 0"},
      {"/links/2/forward_cost", "\"NaN\"", "links[2].forward_cost", "must be a number"},
      {"/links/2/forward_cost", "1e201", "links[2].forward_cost", "must be a number"},
      {"/links/2/boundary_bytes", "1.5", "links[2].boundary_bytes", "integer from 0"},
      {"/links/2/boundary_bytes", "5", "links[2].tapes[0].bytes", "from 5"},
      {"/links/2/tapes", "[]", "links[2].tapes", "at least one"},
      {"/links/2/tapes/0/bytes", "-4", "links[2].tapes[0].bytes", "integer from"},
      {"/links/2/tapes/0/backward_cost", "null", "links[2].tapes[0].backward_cost", "must be a number"},
      {"/links/2/tapes/0/colour", "1", "links[2].tapes[0].colour", "unknown key"},
      {"/links/2/residues", "[]", "links[2].residues", "must list 1 modes"},
      {"/links/2/residues/0/forward_cost", "2.5", "links[2].residues[0].forward_cost", "from 0 to 2"},
      {"/links/2/residues/0/record_costs", "[1, 1]", "links[2].residues[0].record_costs", "must list 1 numbers"},
      {"/links/2/residues/0/tape_bytes", "[]", "links[2].residues[0].tape_bytes", "must list 1 numbers"},
      {"/links/2/residues/0/tape_bytes", "[3]", "links[2].residues[0].tape_bytes", "from 4 to 5"},
      {"/links/2/residues/0/tape_bytes", "[6]", "links[2].residues[0].tape_bytes", "from 4 to 5"},
      {"/links/5/boundary_bytes", "0.0", "links[5].boundary_bytes", "integer from 0"},
  };
  for (const Case& test : cases) {
    nlohmann::json bad = chain_to_json(golden_chain());
    bad[nlohmann::json::json_pointer(test.pointer)] = nlohmann::json::parse(test.value);
    try {
      chain_from_json(bad, "bad.json");
      ADD_FAILURE() << test.pointer << " = " << test.value << " was taken";
    } catch (const UserError& error) {
      const std::string line = error.what();
      EXPECT_EQ(line.find("bad.json: " + std::string(test.field)), 0u) << line;
      EXPECT_NE(line.find(test.right), std::string::npos) << line;
      EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    }
  }
}

TEST(ChainJson, RefusesMissingKeysAndAChainWithoutLoss) {
  const nlohmann::json good = chain_to_json(golden_chain());
  for (const char* key : {"forward_cost", "boundary_bytes", "forward_scratch_bytes", "tapes"}) {
    nlohmann::json bad = good;
    bad["links"][1].erase(key);
    EXPECT_THROW(chain_from_json(bad, "bad.json"), UserError) << key;
  }
  for (const char* key : {"bytes", "backward_cost", "scratch_bytes"}) {
    nlohmann::json bad = good;
    bad["links"][1]["tapes"][0].erase(key);
    EXPECT_THROW(chain_from_json(bad, "bad.json"), UserError) << key;
  }
  nlohmann::json bad = good;
  bad["links"].erase(5);
  EXPECT_THROW(chain_from_json(bad, "bad.json"), UserError);
}

TEST(ChainJson, RefusesFilesThatAreNoJson) {
  const std::string path = testing::TempDir() + "reprise_schedule_test.json";
  for (const char* text :
       {"", "{", "{\"input_bytes\": NaN, \"links\": []}", "{\"input_bytes\": 1e999, \"links\": []}"}) {
    std::ofstream(path) << text;
    try {
      read_chain(path);
      ADD_FAILURE() << text << " was taken";
    } catch (const UserError& error) {
      EXPECT_EQ(std::string(error.what()).find(path), 0u) << error.what();
    }
  }
  std::remove(path.c_str());
  EXPECT_THROW(read_chain(path), UserError);
}

TEST(ScheduleCommand, AnswersAsDesigned) {
  const auto layout_of = [](const Chain&, const std::vector<Action>&) {
    return LayoutFigures{.packed_bytes = 18, .move_bytes = 3};
  };
  const ScheduleAnswer good = answer_schedule(golden_chain(), {.memory_bytes = 18}, layout_of);
  EXPECT_EQ(good.json["feasible"], true);
  EXPECT_EQ(good.json["makespan"], 77);
  EXPECT_EQ(good.json["peak_bytes"], 18);
  EXPECT_EQ(good.json["packed_bytes"], 18);
  EXPECT_EQ(good.json["move_bytes"], 3);
  EXPECT_TRUE(good.json["solve_seconds"].is_number());
  const ScheduleAnswer bad = answer_schedule(golden_chain(), {.memory_bytes = 17}, layout_of);
  EXPECT_EQ(bad.json["feasible"], false);
  EXPECT_TRUE(bad.json["makespan"].is_null());
  EXPECT_EQ(bad.json["smallest_memory"], 18);
  EXPECT_EQ(answer_unit_chain({.strategy = "revolve", .steps = 10, .slots = 3})["extra_forwards"], 15);
  EXPECT_EQ(
      answer_unit_chain(
          {.strategy = "h-revolve", .steps = 10, .ram = 1, .disk = 1, .write_cost = 2, .read_cost = 2})["makespan"],
      37);
  EXPECT_THROW(answer_unit_chain({.strategy = "revolve", .steps = 10}), UserError);
  EXPECT_THROW(answer_unit_chain({.strategy = "revolve", .steps = 10, .slots = 3, .ram = 1}), UserError);
  EXPECT_THROW(answer_unit_chain({.strategy = "sqrt", .steps = 10}), UserError);
  EXPECT_THROW(answer_unit_chain({.strategy = "revolve", .steps = 0, .slots = 3}), UserError);
}

TEST(ScheduleCommand, WritesOneActionALine) {
  const std::vector<Action> actions = {{.kind = ActionKind::kAdvance, .first = 0, .last = 2},
                                       {.kind = ActionKind::kRecord, .first = 2, .choice = 1},
                                       {.kind = ActionKind::kBackward, .first = 2},
                                       {.kind = ActionKind::kDrop, .first = 2}};
  EXPECT_EQ(actions_as_jsonl(actions),
            "{\"action\":\"advance\",\"first\":0,\"last\":2,\"residue_mode\":-1}\n{\"action\":\"record\",\"link\":2,"
            "\"tape\":1}\n"
            "{\"action\":\"backward\",\"link\":2}\n{\"action\":\"drop\",\"boundary\":2}\n");
}

}  // namespace
}  // namespace reprise
