// The search for what is streamed, through which window, under which prices of recomputation: pure, over a trial that plans one choice.
// Here because it must be judged on small chains, where every choice and every schedule can be tried (tests/planner/stream_search_test.cpp).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>

namespace reprise {

struct StreamChoice {
  std::set<uint32_t> streamed;
  uint64_t window_bytes = 0;
  bool loads_are_priced = false;  // the schedule counts what a recomputed forward loads again
};

struct StreamOutcome {
  double cost = 0;        // of a step, waiting included
  bool waits = false;     // whether anything waits for a load
};

struct StreamProblem {
  std::map<uint32_t, uint64_t> weights;  // bytes of what may be streamed
  bool all = false;                      // and must be
  std::set<uint32_t> always;             // of them those that are, whatever else is
  std::function<uint64_t(const std::set<uint32_t>& streamed)> least_window;
  std::function<std::optional<StreamOutcome>(const StreamChoice& choice)> plan;  // none: it does not fit
};

// The cheapest choice that was tried; none where none fits. Of a few weights every set is tried, of many those that keep so many eighths of the
// bytes in memory, evenly over the model, so that those that are streamed have computation between them. Windows grow until two in turn do not pay.
std::optional<StreamChoice> search_streams(const StreamProblem& problem);

}  // namespace reprise
