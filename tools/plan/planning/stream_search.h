// Searches which weights to stream, through which window, and whether the schedule prices loads.
// The search calls only functions of StreamProblem, so that it can be tested on small chains
// against an exhaustive search (tests/planner/stream_search_test.cpp).
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
  bool loads_are_priced = false;  // true: the schedule counts the loads of a recomputed forward in its cost
};

struct StreamOutcome {
  double cost = 0;        // cost of a step, waiting for loads included
  bool waits = false;     // true if a row waits for a load
};

struct StreamProblem {
  std::map<uint32_t, uint64_t> weights;  // bytes of each weight that may be streamed
  bool all = false;                      // true if all of `weights` must be streamed
  std::set<uint32_t> always;             // weights that are streamed in every choice
  std::function<uint64_t(const std::set<uint32_t>& streamed)> min_window;
  std::function<std::optional<StreamOutcome>(const StreamChoice& choice)> plan;  // nothing if the choice does not fit
};

// Returns the cheapest choice that was tried; nothing if none fits. With a few weights every set is
// tried. With many, the sets keep 8 to 0 eighths of the bytes in memory. The weights in memory are
// spaced evenly over the model, so that rows can compute between the loads of streamed weights. For
// each set the window grows until two sizes in succession do not improve the best choice.
std::optional<StreamChoice> search_streams(const StreamProblem& problem);

}  // namespace reprise
