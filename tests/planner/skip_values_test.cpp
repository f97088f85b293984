// Measures how much it costs that skips are always kept. Plans keep every value that crosses a cut
// in addition to the boundary until the last backward that reads it. They are compared with all
// schedules of the same links in which each such value may be dropped and recomputed
// (PLANNING 4.7).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "tests/planner/deep_resnet.h"
#include "tests/planner/random_graph.h"
#include "tests/planner/unet.h"
#include "tools/plan/graph/cuts.h"
#include "tools/plan/graph/skips.h"
#include "tools/plan/graph/link.h"
#include "tools/plan/schedule/schedule.h"

namespace reprise {
namespace {

// A link as the search sees it. Sets of values are bit masks.
struct Step {
  // The crossing values that the link reads and writes. The graph's input is not included, because
  // it is always live.
  uint32_t inputs = 0, outputs = 0;
  uint32_t copies = 0;  // the outputs that the link itself does not read (copy_skips())
  double forward_cost = 0, backward_cost = 0;
  uint64_t inner_bytes = 0;          // bytes of the tape without crossing values
  uint64_t forward_scratch = 0, record_scratch = 0, backward_scratch = 0;
};

struct Problem {
  std::vector<uint64_t> bytes;  // bytes of each crossing value; the value's gradient has the same number
  std::vector<Step> steps;
  uint64_t input_bytes = 0, skip_bytes = 0;
  uint32_t copies = 0;  // all copies of skips
  Chain chain;  // the same problem for the planner; boundaries that are skips have 0 bytes

  uint64_t bytes_of(uint32_t values) const {
    uint64_t sum = 0;
    for (size_t v = 0; v < bytes.size(); ++v) sum += (values >> v & 1u) != 0 ? bytes[v] : 0;
    return sum;
  }
};

// Returns the problem of a graph. Only values that cross cuts are studied, so a tape keeps
// everything or nothing, and there are no residues.
Problem problem_of(Graph graph) {
  graph.boundaries = find_cuts(graph);
  ChainBodies bodies = cut_into_links(graph);
  copy_skips(graph, bodies.links);
  solve_links(graph, bodies.links, kNoScratch,
              [](const Graph& g, const Call& call) { return static_cast<double>(g.tensor(call.arguments[0]).bytes); });
  Problem problem;
  problem.chain = chain_of(graph, bodies.links);
  problem.input_bytes = problem.chain.input_bytes;
  std::map<ValueId, uint32_t> bit;
  const auto crossing = [&](ValueId v) {
    if (v == kNoValue || v == graph.input) return 0u;
    const auto [found, is_new] = bit.try_emplace(v, static_cast<uint32_t>(problem.bytes.size()));
    if (is_new) problem.bytes.push_back(graph.tensor(v).bytes);
    return 1u << found->second;
  };
  for (size_t i = 0; i < bodies.links.size(); ++i) {
    const LinkBody& body = bodies.links[i];
    Link& link = problem.chain.links[i];
    link.tapes.resize(1), link.residues.clear();
    Step step = {.inputs = crossing(body.input),
                 .outputs = crossing(body.output),
                 .forward_cost = link.forward_cost,
                 .backward_cost = link.tapes[0].backward_cost,
                 .inner_bytes = link.tapes[0].bytes - link.boundary_bytes,
                 .forward_scratch = link.forward_scratch_bytes,
                 .record_scratch = link.tapes[0].forward_scratch_bytes,
                 .backward_scratch = link.tapes[0].scratch_bytes};
    uint32_t skips_read = 0;
    for (const auto* calls : {&body.forward, &body.backward}) {
      for (const Call& call : *calls) {
        for (size_t a = 0; a < call.arguments.size(); ++a) {
          const ValueId v = call.arguments[a];
          if (v == kNoValue || graph.values[v].kind != ValueKind::kSkip) continue;
          const bool writes = kernel_info(call.op, call.pass).arguments[a].role == Role::kOutput;
          (writes ? step.outputs : skips_read) |= crossing(v);
        }
      }
    }
    step.inputs |= skips_read & ~step.outputs;
    step.copies = step.outputs & ~skips_read & ~crossing(body.output);
    problem.copies |= step.copies;
    problem.steps.push_back(step);
  }
  problem.skip_bytes = pack_skips(graph, bodies.links).bytes;
  return problem;
}

// Searches all schedules with Dijkstra's algorithm. A state is the live values and the number of
// backwards that have not run.
class Search {
 public:
  explicit Search(const Problem& problem) : problem_(problem) {}

  // Returns the minimum cost with `memory` bytes; infinity if no schedule fits.
  double min_cost(uint64_t memory) const {
    return search(
        [memory](double cost, const Move& move) { return move.peak <= memory ? cost + move.cost : INFINITY; });
  }
  uint64_t min_memory() const {
    return static_cast<uint64_t>(
        search([](double maximum, const Move& move) { return std::max(maximum, static_cast<double>(move.peak)); }));
  }

 private:
  struct State {
    uint32_t values = 0, tapes = 0, undone = 0;  // undone: number of backwards that have not run
    auto operator<=>(const State&) const = default;
  };
  struct Move {
    State to;
    double cost = 0;
    uint64_t peak = 0;
  };

  // Returns the live gradients as a bit mask. A gradient is live from the first backward that adds
  // to it until the backward of the link that wrote its value has run.
  uint32_t gradients(uint32_t undone) const {
    uint32_t read = 0, written = 0;
    for (uint32_t i = undone; i < problem_.steps.size(); ++i)
      read |= problem_.steps[i].inputs, written |= problem_.steps[i].outputs;
    return read & ~written;
  }
  uint64_t live_bytes(const State& s) const {
    uint64_t bytes = problem_.input_bytes + problem_.bytes_of(s.values) + problem_.bytes_of(gradients(s.undone));
    for (size_t i = 0; i < problem_.steps.size(); ++i)
      bytes += (s.tapes >> i & 1u) != 0 ? problem_.steps[i].inner_bytes : 0;
    return bytes;
  }

  template <class Use>
  void for_each_move(const State& s, Use use) const {
    const uint64_t live = live_bytes(s);
    for (uint32_t v = 0; v < problem_.bytes.size(); ++v) {
      if ((s.values >> v & 1u) != 0) use(Move{{s.values & ~(1u << v), s.tapes, s.undone}, 0, live});
    }
    for (uint32_t i = 0; i < s.undone; ++i) {
      const Step& step = problem_.steps[i];
      if ((step.inputs & ~s.values) != 0) continue;
      const uint32_t own = step.outputs & ~step.copies;
      for (const uint32_t written : {own, step.outputs}) {
        if ((s.tapes >> i & 1u) != 0) break;
        const uint64_t fresh = problem_.bytes_of(written & ~s.values);
        const uint32_t with = s.values | written;
        use(Move{{with, s.tapes, s.undone}, step.forward_cost, live + fresh + step.forward_scratch});
        use(Move{{with, s.tapes | 1u << i, s.undone},
                 step.forward_cost,
                 live + fresh + step.inner_bytes + step.record_scratch});
      }
      if ((s.tapes >> i & 1u) == 0) continue;
      use(Move{{s.values, s.tapes & ~(1u << i), s.undone}, 0, live});
      if (i + 1 != s.undone || (own & ~s.values) != 0) continue;
      // Gradients that begin here may have the bytes of copies that end here.
      const uint64_t born = problem_.bytes_of(gradients(i) & ~gradients(s.undone));
      const uint64_t ended = problem_.bytes_of(step.inputs & problem_.copies);
      use(Move{{s.values & ~step.outputs, s.tapes & ~(1u << i), i},
               step.backward_cost,
               live + (born > ended ? born - ended : 0) + step.backward_scratch});
    }
  }

  template <class Grow>
  double search(Grow grow) const {
    std::map<State, double> best;
    std::priority_queue<std::pair<double, State>, std::vector<std::pair<double, State>>, std::greater<>> open;
    const State start = {0, 0, static_cast<uint32_t>(problem_.steps.size())};
    open.push({best[start] = 0, start});
    while (!open.empty()) {
      const auto [cost, state] = open.top();
      open.pop();
      if (cost > best.at(state)) continue;
      if (state.undone == 0) return cost;
      for_each_move(state, [&](const Move& move) {
        const double next = grow(cost, move);
        if (next == INFINITY) return;
        const auto [found, is_new] = best.try_emplace(move.to, next);
        if (!is_new && found->second <= next) return;
        open.push({found->second = next, move.to});
      });
    }
    return INFINITY;
  }

  const Problem& problem_;
};

Schedule planned(const Problem& problem, uint64_t memory) {
  return make_schedule(problem.chain, {.strategy = "optimal",
                                       .memory_bytes = memory < problem.skip_bytes ? 0 : memory - problem.skip_bytes});
}

struct Gap {
  // `memory`: the planner's smallest budget, divided by the smallest of the search. `cost`: the
  // largest quotient of the planner's cost and the search's, over ten budgets from the planner's
  // smallest to storing everything.
  double memory = 1, cost = 1;
};
Gap gap_of(const Problem& problem) {
  const Search search(problem);
  const uint64_t minimum = search.min_memory(), ours = planned(problem, 0).smallest_memory + problem.skip_bytes;
  EXPECT_GE(ours, minimum) << "the search leaves schedules out";
  const uint64_t maximum = make_schedule(problem.chain, {.strategy = "none"}).peak_bytes + problem.skip_bytes;
  Gap gap = {static_cast<double>(ours) / static_cast<double>(minimum), 1};
  for (uint64_t n = 0; n <= 9; ++n) {
    const uint64_t memory = ours + (maximum - ours) * n / 9;
    const Schedule schedule = planned(problem, memory);
    const double cost = search.min_cost(memory);
    EXPECT_TRUE(schedule.feasible);
    EXPECT_GE(schedule.makespan, cost * (1 - 1e-9)) << "the search leaves schedules out";
    gap.cost = std::max(gap.cost, schedule.makespan / cost);
  }
  return gap;
}

TEST(SkipValues, CostAUnetLittle) {
  for (const int levels : {3, 4}) {
    const Problem problem = problem_of(unet(levels));
    ASSERT_LE(problem.bytes.size(), 16u);
    const Gap gap = gap_of(problem);
    printf("U-Net of %d levels, %zu links: smallest budget %.3f of the least, dearest plan %.3f of the cheapest\n",
           levels, problem.steps.size(), gap.memory, gap.cost);
    EXPECT_LE(gap.memory, 1.03);
    EXPECT_LE(gap.cost, 1.01);
  }
}

// A U-Net's skip is read again near the end of the forward. So each skip is copied, and its
// gradient takes the bytes of the copy.
TEST(SkipValues, AreCopiedAndGiveTheirBytesToTheirGradients) {
  Graph graph = unet(4);
  graph.boundaries = find_cuts(graph);
  ChainBodies bodies = cut_into_links(graph);
  const auto skips_of = [&graph](ValueKind kind) {
    std::map<std::string, uint64_t> bytes;
    for (const Value& value : graph.values) {
      if (value.kind == kind) bytes[value.name] = value.tensor.bytes;
    }
    return bytes;
  };
  const std::map<std::string, uint64_t> skips = skips_of(ValueKind::kSkip);
  ASSERT_EQ(skips_of(ValueKind::kSkipGradient).size(), skips.size());
  copy_skips(graph, bodies.links);
  std::map<std::string, uint64_t> copies;
  uint64_t bytes = 0;
  for (const auto& [name, size] : skips) copies[name + ".kept"] = size, bytes += size;
  EXPECT_EQ(skips_of(ValueKind::kSkip), copies);
  EXPECT_GT(pack_skips(graph, bodies.links).bytes, bytes) << "an unsolved link may read a copy at any time";
  solve_links(graph, bodies.links, kNoScratch, [](const Graph&, const Call&) { return 1.0; });
  EXPECT_EQ(pack_skips(graph, bodies.links).bytes, bytes);
}

// Only the link after its writer reads the output of a link, so that skips are no boundaries.
TEST(SkipValues, AreNoBoundariesOfAUnet) {
  for (const size_t max_values : {size_t{3}, size_t{6}, kMaxCandidates}) {
    Graph graph = unet(3);
    graph.boundaries = find_cuts(graph, max_values);
    const ChainBodies bodies = cut_into_links(graph);
    for (const LinkBody& link : bodies.links) {
      const bool is_skip = link.output != kNoValue && graph.values[link.output].kind == ValueKind::kSkip;
      EXPECT_FALSE(is_skip) << link.name;
    }
  }
}

// Measures what keeping all skips costs in unrealistic graphs, in which a node may read any of the
// latest twelve values.
TEST(SkipValues, CostRandomGraphsMore) {
  Gap worst, sum = {0, 0};
  int graphs = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    std::mt19937_64 random(seed);
    const Problem problem = problem_of(random_graph(random, 40 + random() % 20, 12));
    if (problem.skip_bytes == 0 || problem.bytes.size() > 9) continue;
    const Gap gap = gap_of(problem);
    worst = {std::max(worst.memory, gap.memory), std::max(worst.cost, gap.cost)};
    sum = {sum.memory + gap.memory, sum.cost + gap.cost};
    ++graphs;
  }
  printf(
      "%d random graphs: smallest budget %.3f of the least, %.3f at worst; dearest plan %.3f of the cheapest, %.3f at "
      "worst\n",
      graphs, sum.memory / graphs, worst.memory, sum.cost / graphs, worst.cost);
  EXPECT_GE(graphs, 3);
  EXPECT_LE(worst.memory, 1.12);
  EXPECT_LE(worst.cost, 1.28);
}

}  // namespace
}  // namespace reprise
