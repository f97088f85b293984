// Implements stream_search.h: tries sets of streamed weights, and for each set growing windows.
#include "tools/plan/planning/stream_search.h"

#include <algorithm>
#include <vector>

namespace reprise {

namespace {

constexpr uint32_t kFewWeights = 5;  // maximum weights of which every set is tried

uint64_t bytes_of(const StreamProblem& problem, const std::set<uint32_t>& streamed) {
  uint64_t bytes = 0;
  for (const uint32_t weight : streamed) bytes += problem.weights.at(weight);
  return bytes;
}

// Returns the set to stream if about `eighths` eighths of the bytes stay in memory.
std::set<uint32_t> all_but(const StreamProblem& problem, uint32_t eighths) {
  std::set<uint32_t> streamed;
  double owed = 0;  // bytes of the weights so far that should be in memory, and are not
  for (const auto& [weight, size] : problem.weights) {
    const double bytes = static_cast<double>(size);
    owed += bytes * eighths / 8;
    if (owed >= bytes / 2) {
      owed -= bytes;
    } else {
      streamed.insert(weight);
    }
  }
  return streamed;
}

// Returns the sets to try, the set with the fewest bytes first, because the search keeps the first
// of several choices with equal cost.
std::vector<std::set<uint32_t>> sets_to_try(const StreamProblem& problem) {
  std::vector<std::set<uint32_t>> sets;
  if (problem.all) return {all_but(problem, 0)};
  if (problem.weights.size() > kFewWeights) {
    for (uint32_t eighths = 9; eighths-- > 0;) sets.push_back(all_but(problem, eighths));
    return sets;
  }
  for (uint32_t mask = 0; mask < 1u << problem.weights.size(); ++mask) {
    sets.emplace_back();
    uint32_t bit = 0;
    for (const auto& [weight, bytes] : problem.weights) {
      if ((mask >> bit++ & 1u) != 0) sets.back().insert(weight);
    }
  }
  std::stable_sort(sets.begin(), sets.end(),
                   [&](const auto& a, const auto& b) { return bytes_of(problem, a) < bytes_of(problem, b); });
  return sets;
}

class Search {
 public:
  explicit Search(const StreamProblem& problem) : problem_(problem) {}

  std::optional<StreamChoice> run() {
    std::set<std::set<uint32_t>> tried;
    for (std::set<uint32_t> streamed : sets_to_try(problem_)) {
      streamed.insert(problem_.always.begin(), problem_.always.end());
      if (tried.insert(streamed).second) try_windows(streamed);
    }
    return best_;
  }

 private:
  // Tries windows of growing size. Larger ones let loads begin earlier and keep weights longer,
  // until the schedule would use the memory better.
  void try_windows(const std::set<uint32_t>& streamed) {
    if (streamed.empty()) {
      (void)try_choice({streamed, 0, false});
      return;
    }
    const uint64_t minimum = problem_.min_window(streamed), all = bytes_of(problem_, streamed);
    uint32_t in_vain = 0;
    for (const uint64_t halves : {2, 3, 4, 6, 8, 12, 16, 32}) {
      const uint64_t window = std::min(minimum * halves / 2, all);
      bool better = try_choice({streamed, window, false});
      if (waits_) better = try_choice({streamed, window, true}) || better;
      in_vain = better ? 0 : in_vain + 1;
      if (window == all || in_vain == 2) return;
    }
  }

  // Plans the choice. Returns true if it is better than the best so far.
  bool try_choice(const StreamChoice& choice) {
    const std::optional<StreamOutcome> outcome = problem_.plan(choice);
    waits_ = outcome && outcome->waits;
    if (!outcome || (best_ && outcome->cost >= best_cost_)) return false;
    best_ = choice;
    best_cost_ = outcome->cost;
    return true;
  }

  const StreamProblem& problem_;
  std::optional<StreamChoice> best_;
  double best_cost_ = 0;
  bool waits_ = false;  // true if rows wait in the choice that was tried last
};

}  // namespace

std::optional<StreamChoice> search_streams(const StreamProblem& problem) { return Search(problem).run(); }

}  // namespace reprise
