// Distributes revolve's checkpoints over memory and disk: those used least go to disk until the
// others fit memory. Stumm and Walther, "MultiStage approaches for optimal offline checkpointing",
// SIAM J. Sci. Comput. 31 (2009). Costs are used only to compare whole plans: which boundaries
// revolve keeps does not depend on the disk's speed.
#include <algorithm>
#include <numeric>
#include <utility>

#include "tools/plan/schedule/revolve.h"
#include "tools/plan/schedule/strategy.h"

namespace reprise {
namespace {

// One life of a checkpoint, from the advance that keeps it to its drop. A boundary may have
// several, in sequence.
struct Episode {
  int reads = 0;  // number of reads if the checkpoint is on disk
};

// The schedule of revolve with `slots` slots in memory and on disk together, the input's slot
// included. Episodes are numbered in the order in which they begin.
class Reversal {
 public:
  Reversal(const Chain& chain, int slots) : chain_(chain), slots_(slots) {}

  std::vector<Episode> episodes() {
    (void)actions({});
    return episodes_;
  }

  // Returns the actions if episode e is on disk for each true on_disk[e]. Empty: none is on disk.
  std::vector<Action> actions(std::vector<bool> on_disk) {
    on_disk_ = std::move(on_disk);
    episodes_.clear();
    actions_.clear();
    reverse(0, chain_.length(), slots_, -1);
    return std::move(actions_);
  }

 private:
  bool is_on_disk(int episode) const {
    return episode >= 0 && !on_disk_.empty() && on_disk_[static_cast<size_t>(episode)];
  }
  void add(ActionKind kind, int first) { actions_.push_back({.kind = kind, .first = first}); }

  // Reverses links first..last-1. Boundary `first` is in memory, kept by `episode` (-1: the input).
  void reverse(int first, int last, int slots, int episode) {
    const bool spilled = is_on_disk(episode);
    if (spilled) add(ActionKind::kWrite, first);
    while (last - first > 1) {
      const int steps = last - first;
      const int split =
          slots == 1 ? steps - 1
                     : static_cast<int>(revolve_split(static_cast<uint64_t>(steps), static_cast<uint64_t>(slots)));
      const int middle = first + split;
      actions_.push_back({.kind = ActionKind::kAdvance, .first = first, .last = middle});
      if (spilled) add(ActionKind::kDrop, first);
      const int inner = static_cast<int>(episodes_.size());
      episodes_.push_back({});
      reverse(middle, last, std::max(slots - 1, 1), inner);
      add(ActionKind::kDrop, middle);
      if (spilled) add(ActionKind::kRead, first);
      if (episode >= 0) ++episodes_[static_cast<size_t>(episode)].reads;
      last = middle;
    }
    actions_.push_back({.kind = ActionKind::kRecord, .first = first, .choice = 0});
    add(ActionKind::kBackward, first);
  }

  const Chain& chain_;
  const int slots_;
  std::vector<bool> on_disk_;
  std::vector<Episode> episodes_;
  std::vector<Action> actions_;
};

// Returns the plan with as few episodes on disk as memory requires. The episodes with the fewest
// transfers (one write, and the reads) go to disk first. An episode without reads stays in memory,
// because writing it would free nothing.
Schedule spill_least_used(const Chain& chain, int slots, const ScheduleRequest& request) {
  Reversal reversal(chain, slots);
  const std::vector<Episode> episodes = reversal.episodes();
  std::vector<size_t> order;
  for (size_t e = 0; e < episodes.size(); ++e) {
    if (episodes[e].reads > 0) order.push_back(e);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return episodes[a].reads < episodes[b].reads; });
  const auto plan_with = [&](size_t spilled) {
    std::vector<bool> on_disk(episodes.size(), false);
    for (size_t n = 0; n < spilled; ++n) on_disk[order[n]] = true;
    return judge_plan(chain, reversal.actions(std::move(on_disk)), request.memory_bytes, request.disk);
  };
  // Searches by bisection, because more episodes on disk need less memory and more disk.
  size_t low = 0, high = request.disk.bytes == 0 ? 0 : order.size();
  while (low < high) {
    const size_t middle = (low + high) / 2;
    const Schedule plan = plan_with(middle);
    const bool needs_more = !plan.feasible && plan.smallest_memory > 0;
    if (needs_more) low = middle + 1;
    else high = middle;
  }
  return plan_with(low);
}

}  // namespace

Schedule schedule_multistage(const Chain& chain, const ScheduleRequest& request) {
  Schedule best = schedule_revolve(chain, request);
  for (int slots = chain.length(); slots >= 1 && request.disk.bytes > 0; --slots) {
    best = better_plan(std::move(best), spill_least_used(chain, slots, request));
  }
  return best;
}

}  // namespace reprise
