// Keeps k boundaries, then treats each of the k + 1 parts in the same way. The memory is g(n) = k +
// g(n / (k + 1)), which is O(log n) for k = 1.
// Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", section 4.3.
#include <algorithm>

#include "tools/plan/schedule/strategy.h"

namespace reprise {
namespace {

// Appends the actions of links first..last-1; boundary `first` is live.
void split_links(int first, int last, int k, std::vector<Action>& actions) {
  const int parts = std::min(k + 1, last - first);
  if (parts == 1) {
    actions.push_back({.kind = ActionKind::kRecord, .first = first, .choice = 0});
    actions.push_back({.kind = ActionKind::kBackward, .first = first});
    return;
  }
  const auto start = [&](int part) {
    return first + static_cast<int>(static_cast<int64_t>(part) * (last - first) / parts);
  };
  for (int part = 1; part < parts; ++part) {
    actions.push_back({.kind = ActionKind::kAdvance, .first = start(part - 1), .last = start(part)});
  }
  for (int part = parts; part-- > 0;) {
    split_links(start(part), start(part + 1), k, actions);
    if (part > 0) actions.push_back({.kind = ActionKind::kDrop, .first = start(part)});
  }
}

}  // namespace

// Uses the cheapest k that fits if the request gives none.
Schedule schedule_chen_recursive(const Chain& chain, const ScheduleRequest& request) {
  const int low = request.k > 0 ? request.k : 1;
  const int high = request.k > 0 ? request.k : std::max(chain.length() - 1, 1);
  Schedule best;
  for (int k = low; k <= high; ++k) {
    std::vector<Action> actions;
    split_links(0, chain.length(), k, actions);
    const Schedule plan = judge_plan(chain, std::move(actions), request.memory_bytes);
    best = k == low ? plan : better_plan(std::move(best), plan);
  }
  return best;
}

}  // namespace reprise
