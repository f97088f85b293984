// Tests how the planner streams weights: which weights it streams, where they are in the window,
// and when they are loaded. Simpler and slower searches must confirm the results on small cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <queue>
#include <random>
#include <set>

#include "tools/plan/lowering/weight_window.h"
#include "tools/plan/planning/stream_search.h"
#include "tools/plan/schedule/schedule.h"

namespace reprise {
namespace {

// ---- the window ----

// The uses of weights by a random program, the bytes of each weight, and the bytes of the window.
struct WindowCase {
  std::vector<WeightUse> uses;
  std::vector<uint64_t> bytes;
  uint64_t window = 0;
};
WindowCase random_window(uint64_t seed, bool equal_sizes) {
  std::mt19937_64 random(seed);
  WindowCase c;
  const uint64_t weights = 2 + random() % 6, uses = 1 + random() % 40;
  for (uint64_t w = 0; w < weights; ++w) c.bytes.push_back(equal_sizes ? 1 : 1 + random() % 5);
  uint32_t row = 0;
  for (uint64_t u = 0; u < uses; ++u)
    c.uses.push_back({row += 1 + static_cast<uint32_t>(random() % 3), static_cast<uint32_t>(random() % weights)});
  c.window = *std::max_element(c.bytes.begin(), c.bytes.end()) + random() % 6;
  return c;
}

// Returns the smallest possible window: the maximum, over all rows, of the bytes of the weights
// that a row uses.
uint64_t min_of(const WindowCase& c) {
  std::map<uint32_t, std::set<uint32_t>> rows;
  for (const WeightUse& use : c.uses) rows[use.row].insert(use.weight);
  uint64_t maximum = 0;
  for (const auto& [row, wanted] : rows) {
    uint64_t bytes = 0;
    for (const uint32_t weight : wanted) bytes += c.bytes[weight];
    maximum = std::max(maximum, bytes);
  }
  return maximum;
}

// Requires that every use finds its weight loaded, that no two weights share bytes from the start
// of a load to the last use, and that loads start in the order of the list.
void expect_right(const WindowCase& c, const std::vector<WeightLoad>& loads, uint64_t seed) {
  for (const WeightUse& use : c.uses) {
    const auto holds = [&](const WeightLoad& l) {
      return l.weight == use.weight && l.first_row <= use.row && use.row <= l.last_row;
    };
    EXPECT_EQ(std::count_if(loads.begin(), loads.end(), holds), 1) << "seed " << seed << " row " << use.row;
  }
  for (size_t a = 0; a < loads.size(); ++a) {
    EXPECT_LE(loads[a].offset + c.bytes[loads[a].weight], c.window);
    EXPECT_LE(loads[a].start_row, loads[a].first_row);
    EXPECT_LE(loads[a == 0 ? 0 : a - 1].start_row, loads[a].start_row) << "seed " << seed;
    for (size_t b = 0; b < a; ++b) {
      const bool apart = loads[a].offset + c.bytes[loads[a].weight] <= loads[b].offset ||
                         loads[b].offset + c.bytes[loads[b].weight] <= loads[a].offset;
      EXPECT_TRUE(apart || loads[b].last_row < loads[a].start_row) << "seed " << seed << " loads " << b << " and " << a;
    }
  }
}

// Returns the minimum number of loads if all weights have one size, by Belady's rule: evict the
// weight whose next use is last. Ignores addresses.
size_t fewest_loads(const WindowCase& c) {
  std::set<uint32_t> there;
  size_t loads = 0;
  for (size_t u = 0; u < c.uses.size(); ++u) {
    if (there.count(c.uses[u].weight) != 0) continue;
    ++loads;
    if (there.size() == c.window) {
      const auto next = [&](uint32_t weight) {
        size_t n = u;
        while (n < c.uses.size() && c.uses[n].weight != weight) ++n;
        return n;
      };
      there.erase(
          *std::max_element(there.begin(), there.end(), [&](uint32_t a, uint32_t b) { return next(a) < next(b); }));
    }
    there.insert(c.uses[u].weight);
  }
  return loads;
}

TEST(WeightWindow, EveryUseFindsItsWeight) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const WindowCase c = random_window(seed, false);
    const auto loads = fill_window(c.uses, c.bytes, c.window);
    ASSERT_TRUE(loads) << "seed " << seed;
    expect_right(c, *loads, seed);
  }
}

// A window of the smallest possible size must suffice, wherever the weights of earlier rows are in
// it.
TEST(WeightWindow, HoldsTheWeightsOfEachRowWhereverOthersLie) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    std::mt19937_64 random(seed);
    WindowCase c = random_window(seed, false);
    std::vector<WeightUse> uses;
    for (const WeightUse& use : c.uses) {
      std::set<uint32_t> wanted = {use.weight};
      for (uint64_t more = random() % 3; more-- > 0;) wanted.insert(static_cast<uint32_t>(random() % c.bytes.size()));
      for (const uint32_t weight : wanted) uses.push_back({use.row, weight});
      if (seed % 4 == 0) uses.push_back({use.row, use.weight});  // a row may name a weight twice
    }
    c.uses = uses;
    c.window = min_of(c);
    const auto loads = fill_window(c.uses, c.bytes, c.window);
    ASSERT_TRUE(loads) << "seed " << seed;
    expect_right(c, *loads, seed);
    EXPECT_FALSE(fill_window(c.uses, c.bytes, c.window - 1)) << "seed " << seed;
  }
}

TEST(WeightWindow, OfOneSizeNoWindowLoadsLess) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const WindowCase c = random_window(seed, true);
    const auto loads = fill_window(c.uses, c.bytes, c.window);
    ASSERT_TRUE(loads);
    expect_right(c, *loads, seed);
    EXPECT_EQ(loads->size(), fewest_loads(c)) << "seed " << seed;
  }
}

TEST(WeightWindow, HoldsWhatOneRowWantsOrSaysSo) {
  const std::vector<WeightUse> both = {{0, 0}, {0, 1}};
  EXPECT_FALSE(fill_window(both, {2, 3}, 4));
  const auto loads = fill_window(both, {2, 3}, 5);
  ASSERT_TRUE(loads);
  expect_right({both, {2, 3}, 5}, *loads, 0);
  EXPECT_TRUE(fill_window({}, {}, 0)->empty());
}

// A forward and a backward pass over four weights, through a window of two. Each weight must be
// loaded while the previous one is used. The last weight must be loaded once, because the backward
// begins with it.
TEST(WeightWindow, LoadsRunAhead) {
  std::vector<WeightUse> uses;
  for (uint32_t i = 0; i < 8; ++i) uses.push_back({i, i < 4 ? i : 7 - i});
  const auto loads = fill_window(uses, {1, 1, 1, 1}, 2);
  ASSERT_TRUE(loads);
  std::vector<uint32_t> order, starts;
  for (const WeightLoad& load : *loads) order.push_back(load.weight), starts.push_back(load.start_row);
  EXPECT_EQ(order, (std::vector<uint32_t>{0, 1, 2, 3, 1, 0}));
  EXPECT_EQ(starts, (std::vector<uint32_t>{0, 0, 1, 2, 5, 6}));
}

// ---- which weights are streamed: in small chains, whose link i reads weight i in every pass ----

struct StreamedChain {
  Chain chain;
  std::vector<uint64_t> weights;  // bytes, by link
  double byte_cost = 1;
  uint64_t memory = 0;
};

StreamedChain random_streamed_chain(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto upto = [&](uint64_t maximum) { return 1 + random() % maximum; };
  StreamedChain c;
  c.chain.input_bytes = upto(2);
  const uint64_t links = seed % 8 == 0 ? 4 : 3;
  for (uint64_t i = 0; i < links; ++i) {
    Link link;
    link.name = "link";
    link.forward_cost = static_cast<double>(upto(4));
    link.boundary_bytes = i + 1 == links ? 0 : upto(3);
    link.tapes = {{.bytes = link.boundary_bytes + upto(5), .backward_cost = static_cast<double>(upto(6))}};
    c.chain.links.push_back(link);
    c.weights.push_back(upto(4));
  }
  c.byte_cost = static_cast<double>(random() % 4);
  const uint64_t minimum = make_schedule(c.chain, {.memory_bytes = 0, .unit = 1}).smallest_memory,
                 maximum = make_schedule(c.chain, {.strategy = "none"}).peak_bytes;
  uint64_t all = 0;
  for (const uint64_t bytes : c.weights) all += bytes;
  const uint64_t tight = minimum + *std::max_element(c.weights.begin(), c.weights.end());
  c.memory = tight + random() % (maximum + all - tight + 1);
  return c;
}

uint64_t resident_bytes(const StreamedChain& c, const std::set<uint32_t>& streamed) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < c.weights.size(); ++i) bytes += streamed.count(i) == 0 ? c.weights[i] : 0;
  return bytes;
}

// One forward or backward of a link. A list of passes is in the order of the actions.
struct LinkPass {
  int link;
  double cost;
};
std::vector<LinkPass> passes_of(const Chain& chain, const std::vector<Action>& actions) {
  std::vector<LinkPass> passes;
  for (const Action& action : actions) {
    for (int i = action.first; action.kind == ActionKind::kAdvance && i < action.last; ++i)
      passes.push_back({i, chain.links[static_cast<size_t>(i)].forward_cost});
    const Link& link = chain.links[static_cast<size_t>(std::min(action.first, chain.length() - 1))];
    if (action.kind == ActionKind::kRecord) passes.push_back({action.first, link.forward_cost});
    if (action.kind == ActionKind::kBackward) passes.push_back({action.first, link.tapes[0].backward_cost});
  }
  return passes;
}

// Plans one choice of streamed weights and window, as the planner does, and simulates its time. The
// schedule gets the memory that remains. The disk loads one weight at a time, in parallel with the
// passes.
std::optional<StreamOutcome> plan_choice(const StreamedChain& c, const StreamChoice& choice) {
  const uint64_t fixed = resident_bytes(c, choice.streamed) + choice.window_bytes;
  if (fixed > c.memory) return std::nullopt;
  Chain priced = c.chain;
  for (const uint32_t i : choice.streamed)
    priced.links[i].forward_cost += choice.loads_are_priced ? c.byte_cost * static_cast<double>(c.weights[i]) : 0;
  const Schedule schedule = make_schedule(priced, {.memory_bytes = c.memory - fixed, .unit = 1});
  if (!schedule.feasible) return std::nullopt;
  const std::vector<LinkPass> passes = passes_of(c.chain, schedule.actions);
  std::vector<WeightUse> uses;
  for (uint32_t p = 0; p < passes.size(); ++p) {
    const uint32_t weight = static_cast<uint32_t>(passes[p].link);
    if (choice.streamed.count(weight) != 0) uses.push_back({p, weight});
  }
  const auto loads = fill_window(uses, c.weights, choice.window_bytes);
  if (!loads) return std::nullopt;
  double now = 0, disk = 0, computing = 0;
  std::vector<double> done;
  size_t waited = 0;
  for (uint32_t p = 0; p < passes.size(); ++p) {
    while (done.size() < loads->size() && (*loads)[done.size()].start_row <= p) {
      disk = std::max(disk, now) + c.byte_cost * static_cast<double>(c.weights[(*loads)[done.size()].weight]);
      done.push_back(disk);
    }
    for (; waited < loads->size() && (*loads)[waited].first_row <= p; ++waited) now = std::max(now, done[waited]);
    now += passes[p].cost;
    computing += passes[p].cost;
  }
  return StreamOutcome{now, now > computing};
}

// Finds the minimum time over all orders of passes, frees, loads and evictions, with Dijkstra's
// algorithm over states. This window counts only bytes, without addresses, so the result is a lower
// bound.
class EveryOrder {
 public:
  EveryOrder(const StreamedChain& c, const std::set<uint32_t>& streamed, uint64_t window)
      : c_(c),
        streamed_(streamed),
        window_(window),
        memory_(static_cast<int64_t>(c.memory) - static_cast<int64_t>(resident_bytes(c, streamed) + window)) {}

  double minimum() {
    const size_t n = c_.chain.links.size();
    State start{static_cast<int>(n), std::vector<char>(n + 1, 0), std::vector<char>(n, 0),
                std::vector<double>(n, kAway)};
    start.value[0] = 1;
    offer(start, 0);
    while (!queue_.empty()) {
      const auto [cost, state] = queue_.top();
      queue_.pop();
      if (cost > best_[state]) continue;
      if (state.gradient == 0) return cost;
      free(state, cost);
      load(state, cost);
      run(state, cost);
    }
    return INFINITY;
  }

 private:
  static constexpr double kAway = -1;
  struct State {
    int gradient;
    std::vector<char> value, tape;
    std::vector<double> wait;  // seconds until the weight is loaded; kAway: not being loaded
    auto operator<=>(const State&) const = default;
  };
  using Entry = std::pair<double, State>;

  void offer(const State& s, double cost) {
    const auto [place, fresh] = best_.try_emplace(s, cost);
    if (!fresh && place->second <= cost) return;
    place->second = cost;
    queue_.push({cost, s});
  }
  bool fits(const State& s, uint64_t more = 0) const {
    uint64_t live = c_.chain.boundary_bytes(s.gradient) + more;
    for (int i = 0; i < c_.chain.length(); ++i) {
      live += s.value[static_cast<size_t>(i)] ? c_.chain.boundary_bytes(i) : 0;
      live += s.tape[static_cast<size_t>(i)] ? c_.chain.links[static_cast<size_t>(i)].tapes[0].bytes : 0;
    }
    return memory_ >= 0 && live <= static_cast<uint64_t>(memory_);
  }
  void free(const State& s, double cost) {
    for (size_t i = 1; i < c_.chain.links.size(); ++i) {
      State after = s;
      after.value[i] = 0;
      if (s.value[i]) offer(after, cost);
    }
    for (const uint32_t w : streamed_) {
      State after = s;
      after.wait[w] = kAway;
      if (s.wait[w] == 0) offer(after, cost);
    }
  }
  void load(const State& s, double cost) {
    uint64_t used = 0;
    double disk = 0;
    for (const uint32_t w : streamed_) {
      used += s.wait[w] == kAway ? 0 : c_.weights[w];
      disk = std::max(disk, s.wait[w]);
    }
    for (const uint32_t w : streamed_) {
      if (s.wait[w] != kAway || used + c_.weights[w] > window_) continue;
      State after = s;
      after.wait[w] = disk + c_.byte_cost * static_cast<double>(c_.weights[w]);
      offer(after, cost);
    }
  }
  void pass(const State& s, double cost, State after, size_t link, double seconds, uint64_t more = 0) {
    if (!fits(after, more)) return;
    const bool is_streamed = streamed_.count(static_cast<uint32_t>(link)) != 0;
    if (is_streamed && s.wait[link] == kAway) return;
    const double whole = (is_streamed ? s.wait[link] : 0) + seconds;
    for (double& wait : after.wait) wait = wait == kAway ? kAway : std::max(0.0, wait - whole);
    offer(after, cost + whole);
  }
  void run(const State& s, double cost) {
    for (size_t i = 0; i < static_cast<size_t>(s.gradient); ++i) {
      const Link& link = c_.chain.links[i];
      const bool has_input = s.value[i] || (i > 0 && s.tape[i - 1]);
      if (has_input && !s.tape[i] && !s.value[i + 1]) {
        State recorded = s, advanced = s;
        recorded.tape[i] = 1;
        pass(s, cost, recorded, i, link.forward_cost);
        advanced.value[i + 1] = 1;
        if (i + 1 < c_.chain.links.size()) pass(s, cost, advanced, i, link.forward_cost);
      }
      if (!has_input || !s.tape[i] || s.gradient != static_cast<int>(i) + 1 ||
          !fits(s, c_.chain.boundary_bytes(static_cast<int>(i))))
        continue;
      State after = s;
      after.tape[i] = 0;
      after.gradient = static_cast<int>(i);
      pass(s, cost, after, i, link.tapes[0].backward_cost);
    }
  }

  const StreamedChain& c_;
  const std::set<uint32_t>& streamed_;
  const uint64_t window_;
  const int64_t memory_;
  std::map<State, double> best_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

double min_of_all(const StreamedChain& c) {
  double minimum = INFINITY;
  const uint32_t n = static_cast<uint32_t>(c.weights.size());
  for (uint32_t mask = 0; mask < 1u << n; ++mask) {
    std::set<uint32_t> streamed;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; ++i) {
      if ((mask >> i & 1u) != 0) streamed.insert(i), bytes += c.weights[i];
    }
    for (uint64_t window = streamed.empty() ? 0 : 1; window <= bytes; ++window)
      minimum = std::min(minimum, EveryOrder(c, streamed, window).minimum());
  }
  return minimum;
}

TEST(StreamSearch, OfEqualCostsTheFewestBytesAreStreamed) {
  StreamProblem problem;
  problem.weights = {{0, 2}, {1, 2}, {2, 1}};
  problem.min_window = [](const std::set<uint32_t>&) { return uint64_t{1}; };
  problem.plan = [](const StreamChoice& choice) {
    return choice.streamed.empty() ? std::nullopt : std::optional(StreamOutcome{1, false});
  };
  EXPECT_EQ(search_streams(problem)->streamed, std::set<uint32_t>{2});
}

TEST(StreamSearch, BesideEveryOrderOfEveryChoice) {
  int solved = 0, above = 0;
  double worst = 1, sum = 0;
  for (uint64_t seed = 0; seed < 80; ++seed) {
    const StreamedChain c = random_streamed_chain(seed);
    StreamProblem problem;
    for (uint32_t i = 0; i < c.weights.size(); ++i) problem.weights[i] = c.weights[i];
    problem.min_window = [&](const std::set<uint32_t>& streamed) {
      uint64_t maximum = 0;
      for (const uint32_t w : streamed) maximum = std::max(maximum, c.weights[w]);
      return maximum;
    };
    problem.plan = [&](const StreamChoice& choice) { return plan_choice(c, choice); };
    const auto found = search_streams(problem);
    ASSERT_TRUE(found) << "seed " << seed << ": everything streamed through the smallest window fits";
    const double ours = plan_choice(c, *found)->cost, truth = min_of_all(c);
    ASSERT_GE(ours, truth - 1e-9) << "seed " << seed;
    ++solved;
    above += ours > truth + 1e-9;
    worst = std::max(worst, ours / truth);
    sum += ours / truth;
  }
  std::printf("%d problems: above the true optimum in %d, by at most %.1f%%, by %.2f%% on average\n", solved, above,
              100 * (worst - 1), 100 * (sum / solved - 1));
  RecordProperty("above", above);
  EXPECT_LE(above, 2);
  EXPECT_LE(worst, 1.08);
}

}  // namespace
}  // namespace reprise
