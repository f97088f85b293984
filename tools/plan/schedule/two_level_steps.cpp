// Minimum makespan to reverse equal steps with two levels of storage, by the paper's recursion over
// steps, level and slots. Herrmann and Pallez, "H-Revolve: a framework for adjoint computation on
// synchronous hierarchical platforms", ACM TOMS 46 (2020).
#include "tools/plan/schedule/two_level_steps.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tools/files/io/error.h"

namespace reprise {
namespace {

constexpr double kBackwardCost = 1;

using Costs = std::vector<double>;  // indexed by l: the cost of l forwards and l + 1 backwards

void require_cost(double cost, const char* name) {
  if (!(cost >= 0) || !std::isfinite(cost))
    throw UserError("h-revolve: " + std::string(name) + ": must be a number >= 0");
}

void require(const TwoLevels& problem) {
  if (problem.steps < 1) throw UserError("h-revolve: steps: must be at least 1");
  if (problem.ram_slots < 1) throw UserError("h-revolve: ram: must be at least 1 (the chain's input takes one)");
  require_cost(problem.write_cost, "write-cost");
  require_cost(problem.read_cost, "read-cost");
  const double steps = static_cast<double>(problem.steps);
  const double ram = std::min(steps, static_cast<double>(problem.ram_slots));
  const double disk = std::min(steps, static_cast<double>(problem.disk_slots));
  if (steps * steps * (ram + disk) <= 2e10) return;
  throw UserError("h-revolve: steps: too many for so many slots (steps^2 x slots up to 2e10)");
}

// Returns costs with one memory slot more than `with_one_slot_less`, which is empty for one slot.
// The input is in one of the slots, as in revolve.
Costs in_memory(uint64_t steps, const Costs& with_one_slot_less) {
  Costs cost = {kBackwardCost};
  for (uint64_t l = 1; l < steps; ++l) {
    const double count = static_cast<double>(l);
    double best = count * (count + 1) / 2 + (count + 1) * kBackwardCost;
    for (uint64_t j = 1; j < l && !with_one_slot_less.empty(); ++j) {
      best = std::min(best, static_cast<double>(j) + with_one_slot_less[l - j] + cost[j - 1]);
    }
    cost.push_back(best);
  }
  return cost;
}

// Returns costs with one disk slot more than `with_one_slot_less`, if all memory slots are free at
// the start. Each range either stays in memory or writes its input to disk.
Costs with_disk(const TwoLevels& problem, const Costs& memory_only, const Costs& with_one_slot_less) {
  Costs on_disk = {kBackwardCost}, cost = {kBackwardCost};  // on_disk: costs if the input is already on disk
  for (uint64_t l = 1; l < problem.steps; ++l) {
    double best = memory_only[l];
    for (uint64_t j = 1; j < l; ++j) {
      best = std::min(best, static_cast<double>(j) + with_one_slot_less[l - j] + problem.read_cost + on_disk[j - 1]);
    }
    on_disk.push_back(best);
    cost.push_back(std::min(memory_only[l], problem.write_cost + best));
  }
  return cost;
}

}  // namespace

double two_level_makespan(const TwoLevels& problem) {
  require(problem);
  Costs memory_only;
  for (uint64_t slots = 1; slots <= std::min(problem.ram_slots, problem.steps); ++slots) {
    memory_only = in_memory(problem.steps, memory_only);
  }
  Costs cost = memory_only;
  for (uint64_t slots = 1; slots <= std::min(problem.disk_slots, problem.steps); ++slots) {
    cost = with_disk(problem, memory_only, cost);
  }
  return cost.back();
}

}  // namespace reprise
