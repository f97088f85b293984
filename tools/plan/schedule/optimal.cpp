// The optimal persistent schedule of unequal links in a byte budget, with several tapes for each
// link and residues. It is Rotor's dynamic programme (Beaumont et al., arXiv 1911.13214) with a
// corrected keep-tape bound (PLANNING 4) and the residues of PLANNING 5. units.cpp chooses the
// memory unit.
#include <algorithm>
#include <bit>
#include <cmath>
#include <thread>

#include "tools/files/io/error.h"
#include "tools/files/progress/long_work.h"
#include "tools/plan/schedule/cost_table.h"
#include "tools/plan/schedule/h_revolve.h"
#include "tools/plan/schedule/recursion.h"
#include "tools/plan/schedule/strategy.h"
#include "tools/plan/schedule/units.h"

namespace reprise {
namespace {

constexpr double kSumsPerThread = 1e8;   // additions of a table; with fewer, one thread is as fast as several
// additions; up to this number costs are doubles, above it floats, which are twice as fast
constexpr double kMaxDoubleSums = 1e9;

// Maximum work of one table. `sums` counts the additions of table C alone. The tables of residues
// need up to twice as many, but must not make the unit coarser.
struct Limit {
  double sums, table_bytes;
};
constexpr Limit kAskedLimit = {3e10, 1e9};     // for a unit that the request names
constexpr Limit kExactLimit = {7e9, 3e8};      // for exact_unit(), which loses nothing
constexpr Limit kChosenLimit = {2.5e10, 8e8};  // for a unit that choice_at() chooses
constexpr double kFewestUnits = 300;           // for a unit that choice_at() chooses: fewer units round too much
constexpr double kMaxUnits = 4000;  // for a unit that choice_at() chooses: more units hardly change the makespan

// Work of a table whose unit is one byte. With a unit of u bytes the work is u times less.
struct Work {
  double sums = 0, cells = 0;
  double unit_by_sums(const Limit& limit) const { return sums / limit.sums; }
  double unit_by_table(const Limit& limit) const { return cells * sizeof(float) / limit.table_bytes; }
  double min_unit(const Limit& limit) const { return std::max(unit_by_sums(limit), unit_by_table(limit)); }
};

int processors() { return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 16u)); }

class Solver {
 public:
  Solver(const Chain& chain, const ScheduleRequest& request)
      : chain_(chain),
        request_(request),
        modes_(request.residues ? static_cast<int>(chain.links[0].residues.size()) : 0),
        bytes_(chain_in_units(chain, {})),
        bounds_(bytes_, modes_, request.as_published),
        least_(bytes_, bounds_, modes_) {}

  uint64_t smallest_memory() const {
    return chain_.input_bytes + static_cast<uint64_t>(least_.at(kPlain, 0, chain_.length() - 1));
  }

  // Returns a plan in the minimum memory: exact in bytes, but not optimal. If rounding to units
  // leaves no other plan, this is the only one.
  Schedule min_memory_plan() const {
    return judge_plan(chain_, least_.plan(least_.at(kPlain, 0, chain_.length() - 1)), request_.memory_bytes);
  }

  // Returns the best plan in the requested unit if that unit is affordable. Otherwise the budget's
  // level, the next power of two, determines the unit. So a larger budget in the same level does
  // not get a coarser unit. The level below may have a finer unit and so a cheaper plan. That plan
  // is tried too, so that a larger budget does not predict a slower step.
  Schedule best_plan() const {
    if (request_.unit > 0) {
      const uint64_t exact = exact_unit(chain_);
      const uint64_t asked = exact % request_.unit == 0 ? exact : request_.unit;
      const double min_unit = work_at(request_.memory_bytes).min_unit(kAskedLimit);
      if (static_cast<double>(asked) >= min_unit) return solve({.unit = asked}, request_.memory_bytes);
    }
    const uint64_t memory_bytes = std::min(request_.memory_bytes, max_bytes());
    const uint64_t level = std::bit_ceil(memory_bytes), below = level / 2;
    const UnitChoice choice = choice_at(level);
    Schedule best = solve(choice, memory_bytes);
    if (below < smallest_memory()) return best;
    if (const UnitChoice finer = choice_at(below); finer != choice)
      best = better_plan(std::move(best), solve(finer, below));
    return best;
  }

 private:
  // Returns the memory beyond which no plan improves.
  uint64_t max_bytes() const { return chain_.input_bytes + static_cast<uint64_t>(bytes_.memory(UINT64_MAX)); }

  UnitChoice choice_at(uint64_t level_bytes) const {
    const Work work = work_at(level_bytes);
    if (static_cast<double>(exact_unit(chain_)) >= work.min_unit(kExactLimit)) return {.unit = exact_unit(chain_)};
    const double memory = static_cast<double>(std::max<int64_t>(bytes_.memory(level_bytes), 0));
    const double by_sums = std::clamp(work.unit_by_sums(kChosenLimit), memory / kMaxUnits, memory / kFewestUnits);
    return aligned_unit(chain_, static_cast<uint64_t>(std::max(by_sums, work.unit_by_table(kChosenLimit))) + 1);
  }

  // Returns the best plan in units of this size; infeasible if rounding leaves none.
  Schedule solve(const UnitChoice& choice, uint64_t memory_bytes) const {
    const UnitChain units = chain_in_units(chain_, choice);
    const Bounds bounds(units, modes_, request_.as_published);
    const MinMemory minimum(units, bounds, modes_);
    const int64_t memory = units.memory(memory_bytes);
    if (minimum.at(kPlain, 0, chain_.length() - 1) > memory) return {};
    const double sums = work_at(memory_bytes).sums / static_cast<double>(choice.unit);
    const int threads = sums < kSumsPerThread ? 1 : processors();
    const Claim claim = sums < kMaxDoubleSums ? solve_as<double>(units, bounds, minimum, memory, threads)
                                               : solve_as<float>(units, bounds, minimum, memory, threads);
    if (!std::isfinite(claim.makespan)) return {};
    // The cost and memory of the plan are those that simulate() counts, not those of the table. If
    // the two disagree, the plan is still a candidate. With Rotor's published bound a plan may need
    // more memory than the table states, and is returned anyway.
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
  Claim solve_as(const UnitChain& units, const Bounds& bounds, const MinMemory& minimum, int64_t memory,
                 int threads) const {
    CostTable<Cost> table(units, bounds, minimum, modes_, request_.residues && !request_.as_published, memory);
    LongWork work("optimal schedule");
    table.solve(threads, [&work](double share) { work.done(share); });
    if (request_.disk.bytes > 0) return above_table(units, bounds, table, memory);
    const double makespan = table.makespan() / units.cost_scale;
    return {makespan, std::isfinite(makespan) ? table.actions() : std::vector<Action>()};
  }

  template <class Cost>
  Claim above_table(const UnitChain& units, const Bounds& bounds, const CostTable<Cost>& table, int64_t memory) const {
    const MemoryLevel level = {[&table](int i, int l, int64_t m) { return table.cost(i, l, m); },
                               [&table](int i, int l, int64_t m, std::vector<Action>& list) {
                                 table.append(i, l, m, list);
                               }};
    TwoLevelPlan plan = solve_two_levels(chain_, units, bounds, memory, request_.disk, level);
    return {plan.makespan / units.cost_scale, std::move(plan.actions)};
  }

  const Chain& chain_;
  const ScheduleRequest& request_;
  int modes_;
  UnitChain bytes_;
  Bounds bounds_;
  MinMemory least_;
};

// Returns a lower bound of the makespan: every link runs forward and backward once, with the tape
// of its cheapest backward.
double min_cost(const Chain& chain) {
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
    throw UserError("schedule: strategy: \"" + request.strategy + "\" plans at most " + std::to_string(kLongestChain) +
                    " links, not " + std::to_string(chain.length()) + "; use \"revolve\", \"chen\" or \"sqrt\"");
  }
  const Solver solver(chain, request);
  Schedule all = schedule_none(chain, request);
  if (all.feasible && !request.as_published && all.makespan <= min_cost(chain) * (1 + 1e-12)) {
    all.smallest_memory = solver.smallest_memory();
    return all;
  }
  Schedule best = better_plan(solver.best_plan(), solver.min_memory_plan());
  // Sizes are rounded to units, so that another strategy's plan, whose sizes are not rounded, may
  // be better. The solver's minimum memory is valid for all of them.
  for (const auto other : {schedule_none, schedule_every_k, schedule_sqrt, schedule_chen, schedule_chen_recursive,
                           schedule_revolve}) {
    if (!request.as_published)
      best = better_plan(std::move(best), other(chain, {.memory_bytes = request.memory_bytes}));
  }
  // A disk does not lower the minimum memory, because a plan in minimum memory keeps no boundary
  // that it could write to a disk.
  best.smallest_memory = solver.smallest_memory();
  return best;
}

// Returns the better plan of the recursion and of multistage. Multistage may keep boundaries in
// memory while later ones are on disk; the recursion does not.
Schedule schedule_hrevolve(const Chain& chain, const ScheduleRequest& request) {
  Schedule best = schedule_optimal(chain, request);
  const uint64_t smallest = best.smallest_memory;
  best = better_plan(std::move(best), schedule_multistage(chain, request));
  best.smallest_memory = smallest;
  return best;
}

}  // namespace reprise
