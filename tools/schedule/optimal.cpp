// The optimal persistent schedule of unequal links in a byte budget, several tapes per link, with residues.
// Rotor's dynamic programme (Beaumont et al., arXiv 1911.13214), its keep-tape bound corrected (PLANNING 4), and PLANNING 5.
// Memory comes in units chosen by units.cpp.
#include <algorithm>
#include <bit>
#include <cmath>
#include <thread>

#include "tools/formats/error.h"
#include "tools/progress/long_work.h"
#include "tools/schedule/cost_table.h"
#include "tools/schedule/h_revolve.h"
#include "tools/schedule/recursion.h"
#include "tools/schedule/strategy.h"
#include "tools/schedule/units.h"

namespace reprise {
namespace {

constexpr double kSumsPerThread = 1e8;   // fewer are not worth a second thread
constexpr double kMostDoubleSums = 1e9;  // up to here costs are doubles, beyond floats: twice as fast

// What one table may take. Sums are those of C alone: residues, which add up to twice as many, shall not coarsen the unit.
struct Limit {
  double sums, table_bytes;
};
constexpr Limit kAskedLimit = {3e10, 1e9};     // in a unit that was asked for
constexpr Limit kExactLimit = {7e9, 3e8};      // in the unit that loses nothing
constexpr Limit kChosenLimit = {2.5e10, 8e8};  // in a unit of our own choice, at one level or two
constexpr double kFewestUnits = 300;           // of our own choice, whatever the sums: fewer round too much away
constexpr double kMostUnits = 4000;            // more do not show in the makespan

// What a table at one byte a unit would take; at a unit of u bytes it is u times less.
struct Work {
  double sums = 0, cells = 0;
  double unit_by_sums(const Limit& limit) const { return sums / limit.sums; }
  double unit_by_table(const Limit& limit) const { return cells * sizeof(float) / limit.table_bytes; }
  double least_unit(const Limit& limit) const { return std::max(unit_by_sums(limit), unit_by_table(limit)); }
};

int processors() { return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 16u)); }

class Solver {
 public:
  Solver(const Chain& chain, const ScheduleRequest& request)
      : chain_(chain), request_(request), modes_(request.residues ? static_cast<int>(chain.links[0].residues.size()) : 0),
        bytes_(chain_in_units(chain, {})), bounds_(bytes_, modes_, request.as_published), least_(bytes_, bounds_, modes_) {}

  uint64_t smallest_memory() const {
    return chain_.input_bytes + static_cast<uint64_t>(least_.at(kPlain, 0, chain_.length() - 1));
  }

  // Where rounding leaves no plan, this one: exact in bytes, no optimum.
  Schedule least_memory_plan() const {
    return judge_plan(chain_, least_.plan(least_.at(kPlain, 0, chain_.length() - 1)), request_.memory_bytes);
  }

  // The unit that was asked for, if it is affordable: else what the budget's level allows. Levels are powers of two and fix the
  // unit, so that within a level more memory never costs time. If the level below has a finer unit, rounding may cost more than
  // memory gains: its best plan is asked for too, so that a larger budget does not predict a slower step.
  Schedule best_plan() const {
    if (request_.unit > 0) {
      const uint64_t exact = exact_unit(chain_);
      const uint64_t asked = exact % request_.unit == 0 ? exact : request_.unit;
      const double least_unit = work_at(request_.memory_bytes).least_unit(kAskedLimit);
      if (static_cast<double>(asked) >= least_unit) return solve({.unit = asked}, request_.memory_bytes);
    }
    const uint64_t memory_bytes = std::min(request_.memory_bytes, most_bytes());
    const uint64_t level = std::bit_ceil(memory_bytes), below = level / 2;
    const UnitChoice choice = choice_at(level);
    Schedule best = solve(choice, memory_bytes);
    if (below < smallest_memory()) return best;
    if (const UnitChoice finer = choice_at(below); finer != choice) best = better_plan(std::move(best), solve(finer, below));
    return best;
  }

 private:
  // More than this is of no use to any plan.
  uint64_t most_bytes() const { return chain_.input_bytes + static_cast<uint64_t>(bytes_.memory(UINT64_MAX)); }

  UnitChoice choice_at(uint64_t level_bytes) const {
    const Work work = work_at(level_bytes);
    if (static_cast<double>(exact_unit(chain_)) >= work.least_unit(kExactLimit)) return {.unit = exact_unit(chain_)};
    const double memory = static_cast<double>(std::max<int64_t>(bytes_.memory(level_bytes), 0));
    const double by_sums = std::clamp(work.unit_by_sums(kChosenLimit), memory / kMostUnits, memory / kFewestUnits);
    return aligned_unit(chain_, static_cast<uint64_t>(std::max(by_sums, work.unit_by_table(kChosenLimit))) + 1);
  }

  // The best plan in units of this size; infeasible where rounding leaves none.
  Schedule solve(const UnitChoice& choice, uint64_t memory_bytes) const {
    const UnitChain units = chain_in_units(chain_, choice);
    const Bounds bounds(units, modes_, request_.as_published);
    const LeastMemory least(units, bounds, modes_);
    const int64_t memory = units.memory(memory_bytes);
    if (least.at(kPlain, 0, chain_.length() - 1) > memory) return {};
    const double sums = work_at(memory_bytes).sums / static_cast<double>(choice.unit);
    const int threads = sums < kSumsPerThread ? 1 : processors();
    const Claim claim = sums < kMostDoubleSums ? solve_as<double>(units, bounds, least, memory, threads)
                                               : solve_as<float>(units, bounds, least, memory, threads);
    if (!std::isfinite(claim.makespan)) return {};
    // simulate() decides, not the table: should they ever disagree, this is one candidate among several, at what it really
    // costs and needs. Rotor's published bound has a hole: its plan may need more than it says, and is shown as it is.
    return judge_plan(chain_, claim.actions, request_.as_published ? UINT64_MAX : memory_bytes, request_.disk);
  }

  Work work_at(uint64_t memory_bytes) const {
    Work work;
    const int64_t memory = bytes_.memory(memory_bytes);
    for (int i = 0; i < chain_.length(); ++i) {
      for (int l = i; l < chain_.length(); ++l) {
        if (bytes_.shift(i, l) > 0) continue;  // shares the row of another range
        for (int mode = kPlain; mode < modes_; ++mode) {
          const double width = static_cast<double>(std::max<int64_t>(memory - least_.at(mode, i, l) + 1, 0));
          work.cells += width;
          if (mode == kPlain) work.sums += width * (l - i + 1);
        }
      }
    }
    return work;
  }

  struct Claim {
    double makespan = 0;
    std::vector<Action> actions;
  };
  template <class Cost>
  Claim solve_as(const UnitChain& units, const Bounds& bounds, const LeastMemory& least, int64_t memory, int threads) const {
    CostTable<Cost> table(units, bounds, least, modes_, request_.residues && !request_.as_published, memory);
    LongWork work("optimal schedule");
    table.solve(threads, [&work](double share) { work.done(share); });
    if (request_.disk.bytes > 0) return above_table(units, bounds, table, memory);
    const double makespan = table.makespan() / units.cost_scale;
    return {makespan, std::isfinite(makespan) ? table.actions() : std::vector<Action>()};
  }

  template <class Cost>
  Claim above_table(const UnitChain& units, const Bounds& bounds, const CostTable<Cost>& table, int64_t memory) const {
    const MemoryLevel level = {[&table](int i, int l, int64_t m) { return table.cost(i, l, m); },
                               [&table](int i, int l, int64_t m, std::vector<Action>& list) { table.append(i, l, m, list); }};
    TwoLevelPlan plan = solve_two_levels(chain_, units, bounds, memory, request_.disk, level);
    return {plan.makespan / units.cost_scale, std::move(plan.actions)};
  }

  const Chain& chain_;
  const ScheduleRequest& request_;
  int modes_;
  UnitChain bytes_;
  Bounds bounds_;
  LeastMemory least_;
};

// No plan costs less: every link runs forward and backward once, with the tape that serves its backward best.
double least_cost(const Chain& chain) {
  double cost = 0;
  for (const Link& link : chain.links) {
    double backward = link.tapes[0].backward_cost;
    for (const Tape& tape : link.tapes) backward = std::min(backward, tape.backward_cost);
    cost += link.forward_cost + backward;
  }
  return cost;
}

}  // namespace

Schedule schedule_optimal(const Chain& chain, const ScheduleRequest& request) {
  if (chain.length() > kLongestChain) {
    throw UserError("schedule: strategy: \"" + request.strategy + "\" plans at most " + std::to_string(kLongestChain) + " links, not " +
                    std::to_string(chain.length()) + "; use \"revolve\", \"chen\" or \"sqrt\"");
  }
  const Solver solver(chain, request);
  Schedule all = schedule_none(chain, request);
  if (all.feasible && !request.as_published && all.makespan <= least_cost(chain) * (1 + 1e-12)) {
    all.smallest_memory = solver.smallest_memory();
    return all;
  }
  Schedule best = better_plan(solver.best_plan(), solver.least_memory_plan());
  // Sizes are rounded up to units: a plan without rounding may still be better. All are of the class whose least memory
  // the solver knows.
  for (const auto other : {schedule_none, schedule_every_k, schedule_sqrt, schedule_chen, schedule_chen_recursive,
                           schedule_revolve}) {
    if (!request.as_published) best = better_plan(std::move(best), other(chain, {.memory_bytes = request.memory_bytes}));
  }
  best.smallest_memory = solver.smallest_memory();  // a disk lowers it no further: nothing waits in memory there either
  return best;
}

// Multistage may keep boundaries in memory under others on disk, which the recursion does not.
Schedule schedule_hrevolve(const Chain& chain, const ScheduleRequest& request) {
  Schedule best = schedule_optimal(chain, request);
  const uint64_t smallest = best.smallest_memory;
  best = better_plan(std::move(best), schedule_multistage(chain, request));
  best.smallest_memory = smallest;
  return best;
}

}  // namespace reprise
