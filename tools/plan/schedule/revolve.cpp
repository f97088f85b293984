// Optimal reversal of equal steps with s slots, and the same placement on chains whose links
// differ. Griewank and Walther, "Algorithm 799: revolve", ACM TOMS 26 (2000). It uses no costs: on
// a chain of unequal links it is a heuristic, which `optimal` improves on.
#include "tools/plan/schedule/revolve.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "tools/files/io/error.h"
#include "tools/plan/schedule/strategy.h"

namespace reprise {
namespace {

int64_t min_repeats(uint64_t steps, uint64_t slots) {
  int64_t repeats = 0;
  while (revolve_reach(slots, repeats) < steps) ++repeats;
  return repeats;
}

// Reverses links first..last-1; boundary `first` is in one of the slots.
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

// Returns the maximum number of slots that can fit. Just before the first backward, memory contains
// the input, slots - 1 other boundaries and the last tape.
int max_slots(const Chain& chain, uint64_t memory_bytes) {
  std::vector<uint64_t> boundaries;
  for (int i = 1; i < chain.length(); ++i) boundaries.push_back(chain.boundary_bytes(i));
  std::sort(boundaries.begin(), boundaries.end());
  uint64_t bytes = chain.input_bytes + chain.links.back().tapes[0].bytes;
  int slots = 1;
  for (const uint64_t boundary : boundaries) {
    bytes += boundary;
    if (bytes > memory_bytes) break;
    ++slots;
  }
  return slots;
}

Schedule plan_with(const Chain& chain, int slots, uint64_t memory_bytes) {
  std::vector<Action> actions;
  reverse_links(0, chain.length(), slots, actions);
  return judge_plan(chain, std::move(actions), memory_bytes);
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
  const int64_t repeats = slots == 1 ? static_cast<int64_t>(steps) - 1 : min_repeats(steps, slots);
  return static_cast<uint64_t>(repeats) * steps - revolve_reach(slots + 1, repeats - 1);
}

uint64_t revolve_split(uint64_t steps, uint64_t slots) {
  const int64_t repeats = min_repeats(steps, slots);
  return std::min(revolve_reach(slots, repeats - 1), steps - revolve_reach(slots - 1, repeats - 1));
}

// Uses the given slots, or the cheapest number that fits: on unequal links fewer slots may do less
// work. If nothing fits, smallest_memory is the minimum over all numbers of slots.
Schedule schedule_revolve(const Chain& chain, const ScheduleRequest& request) {
  if (request.slots > 0) return plan_with(chain, std::min(request.slots, chain.length()), request.memory_bytes);
  const int maximum = max_slots(chain, request.memory_bytes);
  Schedule best;
  for (int slots = 1; slots <= chain.length() && (slots <= maximum || !best.feasible); ++slots) {
    best = better_plan(std::move(best), plan_with(chain, slots, request.memory_bytes));
  }
  return best;
}

}  // namespace reprise
