// Tests schedules over memory and disk: the simulation against numbers computed by hand, h-revolve
// against the paper's recursion and an exhaustive search, multistage against revolve, and refusals.
// A schedule that claims too little memory, disk or time would otherwise fail only on the board.
// The search covers states instead of using a recursion, and counts memory and time itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <queue>
#include <random>
#include <tuple>

#include "tools/files/io/error.h"
#include "tools/plan/schedule/revolve.h"
#include "tools/plan/schedule/schedule.h"
#include "tools/plan/schedule/simulate.h"
#include "tools/plan/schedule/two_level_steps.h"

namespace reprise {
namespace {

Chain random_chain(uint64_t seed, int min_links, int max_links, uint64_t max_scratch, int modes) {
  std::mt19937_64 random(seed);
  const auto upto = [&](uint64_t maximum) { return random() % (maximum + 1); };
  Chain chain{.input_bytes = 1 + upto(5), .links = {}};
  const int length = min_links + static_cast<int>(upto(static_cast<uint64_t>(max_links - min_links)));
  for (int i = 0; i < length; ++i) {
    const bool loss = i + 1 == length;
    Link link{.name = "l", .forward_cost = static_cast<double>(1 + upto(8)), .boundary_bytes = loss ? 0 : 1 + upto(5),
              .forward_scratch_bytes = upto(max_scratch), .tapes = {}, .residues = {}};
    link.tapes.push_back({.bytes = link.boundary_bytes + upto(9),
                          .backward_cost = static_cast<double>(upto(9)),
                          .scratch_bytes = upto(max_scratch),
                          .forward_scratch_bytes = upto(max_scratch)});
    for (int k = 0; k < modes; ++k) link.residues.push_back({.bytes = upto(4), .forward_cost = link.forward_cost / 2});
    chain.links.push_back(link);
  }
  return chain;
}

// Finds the minimum makespan over all orders of advances, records, backwards, drops, writes and
// reads. Uses Dijkstra's algorithm over states, which say where each value is stored.
class Search {
 public:
  Search(const Chain& chain, uint64_t memory_bytes, const DiskLevel& disk)
      : chain_(chain), memory_(memory_bytes), disk_(disk) {}

  double min_makespan() {
    const int length = chain_.length();
    reach({1, 0, 0, length}, 0);
    while (!open_.empty()) {
      const auto [cost, state] = open_.top();
      open_.pop();
      if (cost > best_[state]) continue;
      if (std::get<3>(state) == 0) return cost;
      expand(state, cost);
    }
    return INFINITY;
  }

 private:
  // Bit masks of the boundaries in memory, the boundaries on disk and the tapes; then the index of
  // the live gradient.
  using State = std::tuple<int, int, int, int>;
  using Entry = std::pair<double, State>;

  uint64_t a(int i) const { return chain_.boundary_bytes(i); }
  uint64_t in_memory(const State& state) const {
    const auto [held, on_disk, tapes, gradient] = state;
    uint64_t bytes = a(gradient);
    for (int i = 0; i < chain_.length(); ++i)
      bytes += (held >> i & 1 ? a(i) : 0) + (tapes >> i & 1 ? chain_.links[i].tapes[0].bytes : 0);
    return bytes;
  }
  static bool readable(const State& state, int i) {
    return std::get<0>(state) >> i & 1 || (i > 0 && std::get<2>(state) >> (i - 1) & 1);
  }

  void reach(const State& state, double cost) {
    const auto [found, is_new] = best_.try_emplace(state, cost);
    if (!is_new && found->second <= cost) return;
    found->second = cost;
    open_.push({cost, state});
  }

  void expand(const State& state, double cost) {
    const auto [held, on_disk, tapes, gradient] = state;
    const uint64_t live = in_memory(state);
    for (int i = 0; i < gradient; ++i) {
      const Link& link = chain_.links[i];
      if (readable(state, i)) advance_and_record(state, cost, i, live);
      const bool last = i + 1 == gradient && tapes >> i & 1 && readable(state, i);
      if (last && live + a(i) + link.tapes[0].scratch_bytes <= memory_) {
        reach({held, on_disk, tapes & ~(1 << i), i}, cost + link.tapes[0].backward_cost);
      }
    }
    for (int i = 1; i < chain_.length(); ++i) {
      const double bytes = static_cast<double>(a(i));
      if (held >> i & 1) reach({held & ~(1 << i), on_disk, tapes, gradient}, cost);
      if (on_disk >> i & 1) reach({held, on_disk & ~(1 << i), tapes, gradient}, cost);
      uint64_t there = a(i);
      for (int k = 1; k < chain_.length(); ++k) there += on_disk >> k & 1 ? a(k) : 0;
      const bool may_write = held >> i & 1 && !(on_disk >> i & 1) && there <= disk_.bytes;
      if (may_write) reach({held, on_disk | 1 << i, tapes, gradient}, cost + disk_.write_cost * bytes);
      const bool may_read = on_disk >> i & 1 && !readable(state, i) && live + a(i) <= memory_;
      if (may_read) reach({held | 1 << i, on_disk, tapes, gradient}, cost + disk_.read_cost * bytes);
    }
  }

  void advance_and_record(const State& state, double cost, int i, uint64_t live) {
    const auto [held, on_disk, tapes, gradient] = state;
    const Tape& tape = chain_.links[i].tapes[0];
    const bool recorded = tapes >> i & 1;
    if (!recorded && !(held >> (i + 1) & 1) && live + tape.bytes + tape.forward_scratch_bytes <= memory_) {
      reach({held, on_disk, tapes | 1 << i, gradient}, cost + chain_.links[i].forward_cost);
    }
    double forward = 0;
    for (int j = i + 1; j < gradient; ++j) {  // runs links i to j - 1; the boundaries between them are transient
      const Link& link = chain_.links[j - 1];
      if (tapes >> (j - 1) & 1 || live + (j - 1 > i ? a(j - 1) : 0) + a(j) + link.forward_scratch_bytes > memory_)
        return;
      forward += link.forward_cost;
      if (!readable(state, j)) reach({held | 1 << j, on_disk, tapes, gradient}, cost + forward);
    }
  }

  const Chain& chain_;
  const uint64_t memory_;
  const DiskLevel disk_;
  std::map<State, double> best_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open_;
};

Schedule solve(const Chain& chain, const char* strategy, uint64_t memory, const DiskLevel& disk, bool residues = true) {
  ScheduleRequest request;
  request.strategy = strategy;
  request.memory_bytes = memory;
  request.disk = disk;
  request.residues = residues;
  return make_schedule(chain, request);
}

TEST(DiskSimulation, CountsByHand) {
  Chain chain{.input_bytes = 10, .links = {}};
  for (const uint64_t boundary : {4, 6, 0}) {
    chain.links.push_back({.name = "x", .forward_cost = 1, .boundary_bytes = boundary, .forward_scratch_bytes = 0,
                           .tapes = {{.bytes = boundary + 1, .backward_cost = 2}}, .residues = {}});
  }
  using K = ActionKind;
  const std::vector<Action> actions = {{K::kAdvance, 0, 1, -1},  {K::kWrite, 1, 0, -1}, {K::kAdvance, 1, 2, -1},
                                       {K::kDrop, 1, 0, -1},     {K::kRecord, 2, 0, 0}, {K::kBackward, 2, 0, -1},
                                       {K::kDrop, 2, 0, -1},     {K::kRead, 1, 0, -1},  {K::kRecord, 1, 0, 0},
                                       {K::kBackward, 1, 0, -1}, {K::kDrop, 1, 0, -1},  {K::kRecord, 0, 0, 0},
                                       {K::kBackward, 0, 0, -1}};
  const Simulation walked = simulate(chain, actions, {4, 0.5, 0.25});
  EXPECT_EQ(walked.fault, "");
  EXPECT_EQ(walked.makespan, 5 + 6 + 4 * 0.5 + 4 * 0.25);
  EXPECT_EQ(walked.disk_bytes, 4u);
  // The peak is in the backward of link 1: input, boundary 1, tape, gradient, new gradient.
  EXPECT_EQ(walked.peak_bytes, 10u + 4 + 7 + 6 + 4);
  for (size_t n = 0; n < actions.size(); ++n) {
    std::vector<Action> mutant = actions;
    mutant.erase(mutant.begin() + static_cast<std::ptrdiff_t>(n));
    EXPECT_FALSE(simulate(chain, mutant).valid) << "without action " << n;
    mutant = actions;
    mutant.insert(mutant.begin() + static_cast<std::ptrdiff_t>(n), actions[n]);
    EXPECT_FALSE(simulate(chain, mutant).valid) << "action " << n << " twice";
  }
  EXPECT_FALSE(simulate(chain, std::vector<Action>{{K::kWrite, 0, 0, -1}}).valid) << "the input stays in memory";
}

// Plans the unit chain of PLANNING 4, with disk slots of one byte. Unlike in the paper, the input
// stays in memory and costs nothing to read. So the paper's recursion gives only the cost of later
// ranges, with equal additional memory. This test computes the cost of ranges that begin at the
// input.
TEST(HRevolve, OnEqualStepsNeverWorseThanThePapersRecursion) {
  constexpr uint64_t kTape = 1000;
  int same = 0, better = 0;
  for (const auto& [write, read] : {std::pair{0.0, 0.0}, {1.0, 1.0}, {2.0, 2.0}, {0.5, 3.0}}) {
    for (uint64_t ram = 1; ram <= 3; ++ram) {
      for (uint64_t disk = 1; disk <= 3; ++disk) {
        // paper[n]: minimum cost of extra forwards and transfers for the first n steps, by the
        // paper's recursion.
        std::vector<double> paper = {0, 0};
        for (uint64_t steps = 2; steps <= 24; ++steps) {
          double best = static_cast<double>(revolve_extra_forwards(steps, ram + 1));
          for (uint64_t j = 1; j < steps; ++j) {
            const double behind =
                two_level_makespan({steps - j, ram, disk, write, read}) - static_cast<double>(steps - j);
            best = std::min(best, static_cast<double>(j) + behind + paper[j]);
          }
          paper.push_back(best);
          if (steps != 5 && steps != 12 && steps != 24) continue;
          Chain chain{.input_bytes = 1, .links = {}};
          for (uint64_t i = 0; i < steps; ++i) {
            const bool loss = i + 1 == steps;
            chain.links.push_back({.name = "step",
                                   .forward_cost = 1,
                                   .boundary_bytes = loss ? 0u : 1u,
                                   .forward_scratch_bytes = 0,
                                   .tapes = {{.bytes = kTape + loss, .backward_cost = 2}},
                                   .residues = {}});
          }
          const Schedule plan = solve(chain, "h-revolve", ram + 1 + kTape + 3, {disk, write, read});
          ASSERT_TRUE(plan.feasible);
          const double ours = plan.makespan - 3.0 * static_cast<double>(steps);
          ASSERT_LE(ours, best) << steps << " steps, memory " << ram << ", disk " << disk << ", " << write << " and "
                                << read;
          (ours == best ? same : better) += 1;
        }
      }
    }
  }
  std::printf("the paper's makespan %d times, less %d times\n", same, better);
  EXPECT_GT(same, better);
}

TEST(HRevolve, NeverBelowTheExhaustiveSearch) {
  int solved = 0, above = 0;
  double worst = 1;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Chain chain = random_chain(seed, 3, 5, seed % 3 * 3, 0);
    const uint64_t maximum = solve(chain, "none", UINT64_MAX, {}).peak_bytes,
                   minimum = solve(chain, "optimal", 0, {}).smallest_memory;
    const DiskLevel disk = {seed % 4 * 4, static_cast<double>(seed % 5) / 4, static_cast<double>(seed % 7) / 4};
    for (const uint64_t memory : {minimum, minimum + (maximum - minimum) / 3, maximum}) {
      const double truth = Search(chain, memory, disk).min_makespan();
      for (const char* strategy : {"h-revolve", "multistage"}) {
        const Schedule plan = solve(chain, strategy, memory, disk);
        if (!plan.feasible) continue;
        ASSERT_GE(plan.makespan, truth - 1e-9) << strategy << ", seed " << seed << ", M = " << memory;
        if (strategy[0] == 'm') continue;
        ++solved;
        above += plan.makespan > truth + 1e-9;
        worst = std::max(worst, plan.makespan / truth);
      }
    }
  }
  std::printf("%d problems: above the true optimum in %d, by at most %.1f%%\n", solved, above, 100 * (worst - 1));
  EXPECT_GT(solved, 500);
  EXPECT_LT(above, solved / 5);
}

TEST(DiskStrategies, RandomChainsFitBothLevels) {
  int spills = 0;
  for (uint64_t seed = 100; seed < 180; ++seed) {
    const Chain chain = random_chain(seed, 4, 18, 4, static_cast<int>(seed % 3));
    const uint64_t maximum = solve(chain, "none", UINT64_MAX, {}).peak_bytes;
    for (uint64_t memory = 0; memory <= maximum + 2; memory += 1 + maximum / 12) {
      const Schedule optimal = solve(chain, "optimal", memory, {}), revolve = solve(chain, "revolve", memory, {});
      EXPECT_EQ(solve(chain, "h-revolve", memory, {}).makespan, optimal.makespan) << "no disk, seed " << seed;
      EXPECT_EQ(solve(chain, "multistage", memory, {}).makespan, revolve.makespan) << "no disk, seed " << seed;
      double before = optimal.feasible ? optimal.makespan : INFINITY;
      for (const uint64_t bytes : {3u, 9u, 30u, 1000u}) {
        const DiskLevel disk = {bytes, 0.3, 0.2};
        const Schedule both = solve(chain, "h-revolve", memory, disk),
                       staged = solve(chain, "multistage", memory, disk);
        for (const Schedule* plan : {&both, &staged}) {
          if (!plan->feasible) continue;
          const Simulation walked = simulate(chain, plan->actions, disk);
          ASSERT_TRUE(walked.valid) << walked.fault;
          ASSERT_EQ(walked.makespan, plan->makespan);
          ASSERT_LE(walked.peak_bytes, memory);
          ASSERT_LE(walked.disk_bytes, bytes);
          spills += walked.disk_bytes > 0;
        }
        ASSERT_EQ(both.feasible, optimal.feasible || staged.feasible);
        ASSERT_TRUE(!revolve.feasible || staged.makespan <= revolve.makespan) << "seed " << seed << ", M = " << memory;
        if (!both.feasible) continue;
        ASSERT_LE(both.makespan, before + 1e-9)
            << "seed " << seed << ", M = " << memory << ", a larger disk costs time";
        before = both.makespan;
      }
    }
  }
  EXPECT_GT(spills, 500);
}

// The sizes have no large common divisor, and the memory has too many bytes for a table with units
// of one byte. So sizes are rounded to units, and the plan must still fit memory and disk.
TEST(HRevolve, RoundedSizesKeepBothBudgets) {
  for (uint64_t seed = 300; seed < 306; ++seed) {
    Chain chain = random_chain(seed, 30, 60, 4, 1);
    std::mt19937_64 random(seed);
    for (Link& link : chain.links) {
      const uint64_t grown = link.boundary_bytes == 0 ? 0 : (link.boundary_bytes << 20) + random() % (1 << 19);
      link.tapes[0].bytes = (link.tapes[0].bytes << 20) + grown;
      link.boundary_bytes = grown;
      link.residues[0].bytes <<= 18;
    }
    chain.input_bytes <<= 20;
    const Schedule minimum = solve(chain, "optimal", 0, {});
    const uint64_t memory = minimum.smallest_memory + minimum.smallest_memory / 10;
    const double without = solve(chain, "optimal", memory, {}).makespan;
    for (const uint64_t bytes : {uint64_t{7654321}, uint64_t{54321987}, uint64_t{1} << 40}) {
      const Schedule plan = solve(chain, "h-revolve", memory, {bytes, 1e-7, 1e-7});
      ASSERT_TRUE(plan.feasible);
      EXPECT_LE(plan.peak_bytes, memory);
      EXPECT_LE(plan.disk_bytes, bytes);
      EXPECT_LE(plan.makespan, without);
      EXPECT_TRUE(bytes < uint64_t{1} << 30 || plan.disk_bytes > 0) << "so large and fast a disk must be used";
    }
  }
}

// With a disk, every-k and sqrt must write exactly the boundaries that they otherwise keep in
// memory, except the last one, which is needed first. Each of these boundaries is written and read
// once.
TEST(DiskStrategies, SegmentsWaitOnDisk) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Chain chain = random_chain(seed, 3, 9, 5, 0);
    for (const auto& [strategy, k] : {std::pair{"every-k", 1}, {"every-k", 2}, {"sqrt", 0}}) {
      ScheduleRequest request;
      request.strategy = strategy;
      request.k = k;
      const Schedule in_memory = make_schedule(chain, request);
      request.disk = {UINT64_MAX, 3, 5};
      const Schedule on_disk = make_schedule(chain, request);
      ASSERT_TRUE(on_disk.feasible);
      uint64_t bytes = 0;
      std::vector<int> written;
      for (const Action& action : on_disk.actions) {
        if (action.kind != ActionKind::kWrite) continue;
        written.push_back(action.first);
        bytes += chain.boundary_bytes(action.first);
      }
      std::vector<int> kept;
      for (const Action& action : in_memory.actions) {
        if (action.kind == ActionKind::kAdvance) kept.push_back(action.last);
      }
      if (!kept.empty()) kept.pop_back();
      EXPECT_EQ(written, kept) << strategy << " seed " << seed;
      EXPECT_EQ(on_disk.disk_bytes, bytes) << strategy << " seed " << seed;
      EXPECT_LE(on_disk.peak_bytes, in_memory.peak_bytes) << strategy << " seed " << seed;
      EXPECT_DOUBLE_EQ(on_disk.makespan, in_memory.makespan + 8 * static_cast<double>(bytes))
          << strategy << " seed " << seed;
      request.disk.bytes = bytes - 1;
      EXPECT_TRUE(bytes <= 1 || !make_schedule(chain, request).feasible) << strategy << " seed " << seed;
    }
  }
}

TEST(DiskStrategies, OthersRefuseADisk) {
  const Chain chain = random_chain(1, 3, 3, 0, 0);
  for (const std::string& name : strategy_names()) {
    ScheduleRequest request;
    request.strategy = name;
    request.disk = {100, 1, 1};
    if (takes_disk(name)) {
      EXPECT_NO_THROW((void)make_schedule(chain, request)) << name;
    } else {
      EXPECT_THROW((void)make_schedule(chain, request), UserError) << name;
    }
  }
}

}  // namespace
}  // namespace reprise
