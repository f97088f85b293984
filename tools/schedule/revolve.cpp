// Optimal reversal of equal steps with s slots, and the same placement on chains whose links differ.
// Griewank and Walther, "Algorithm 799: revolve", ACM TOMS 26 (2000).
// It must not know costs: on a chain of unequal links it is a heuristic, which `optimal` improves on.
#include "tools/schedule/revolve.h"

#include <algorithm>
#include <limits>

#include "tools/formats/error.h"
#include "tools/schedule/strategy.h"

namespace reprise {
namespace {

int64_t least_repeats(uint64_t steps, uint64_t slots) {
  int64_t repeats = 0;
  while (revolve_reach(slots, repeats) < steps) ++repeats;
  return repeats;
}

// Links first..last-1, boundary `first` in one of the slots.
void reverse_links(int first, int last, int slots, std::vector<Action>& actions) {
  while (last - first > 1) {
    const int steps = last - first;
    const int split = slots == 1 ? steps - 1 : static_cast<int>(revolve_split(steps, slots));
    const int middle = first + split;
    actions.push_back({.kind = ActionKind::kAdvance, .first = first, .last = middle});
    reverse_links(middle, last, std::max(slots - 1, 1), actions);
    actions.push_back({.kind = ActionKind::kDrop, .first = middle});
    last = middle;
  }
  actions.push_back({.kind = ActionKind::kRecord, .first = first, .choice = 0});
  actions.push_back({.kind = ActionKind::kBackward, .first = first});
}

}  // namespace

uint64_t revolve_reach(uint64_t slots, int64_t repeats) {
  if (repeats < 0) return 0;
  uint64_t smaller = std::min(slots, static_cast<uint64_t>(repeats));
  const uint64_t larger = std::max(slots, static_cast<uint64_t>(repeats));
  unsigned __int128 value = 1;
  for (uint64_t n = 1; n <= smaller; ++n) {
    value = value * (larger + n) / n;
    if (value > std::numeric_limits<uint64_t>::max()) return std::numeric_limits<uint64_t>::max();
  }
  return static_cast<uint64_t>(value);
}

uint64_t revolve_extra_forwards(uint64_t steps, uint64_t slots) {
  if (steps < 1) throw UserError("revolve: steps: must be at least 1");
  if (slots < 1) throw UserError("revolve: slots: must be at least 1 (the chain's input takes one)");
  const int64_t repeats = slots == 1 ? static_cast<int64_t>(steps) - 1 : least_repeats(steps, slots);
  return static_cast<uint64_t>(repeats) * steps - revolve_reach(slots + 1, repeats - 1);
}

uint64_t revolve_split(uint64_t steps, uint64_t slots) {
  const int64_t repeats = least_repeats(steps, slots);
  return std::min(revolve_reach(slots, repeats - 1), steps - revolve_reach(slots - 1, repeats - 1));
}

// The slots asked for, or the largest number whose plan fits.
Schedule schedule_revolve(const Chain& chain, const ScheduleRequest& request) {
  const int most = request.slots > 0 ? std::min(request.slots, chain.length()) : chain.length();
  const int least = request.slots > 0 ? most : 1;
  Schedule best;
  for (int slots = most; slots >= least; --slots) {
    std::vector<Action> actions;
    reverse_links(0, chain.length(), slots, actions);
    const Schedule plan = judge_plan(chain, std::move(actions), request.memory_bytes);
    best = slots == most ? plan : better_plan(best, plan);
    if (best.feasible) return best;
  }
  return best;
}

}  // namespace reprise
