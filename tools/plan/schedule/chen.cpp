// Cuts the chain where the bytes since the last cut exceed b, recomputes each segment once, and
// searches b. Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", Algorithm 3 and
// its budget search (section 4.2). It places cuts by bytes alone; it must not use costs.
#include <algorithm>
#include <cmath>

#include "tools/plan/schedule/strategy.h"

namespace reprise {
namespace {

struct Segments {
  std::vector<int> starts = {0};
  double kept_bytes = 0;     // x of the paper: bytes of the boundaries at the cuts
  double longest_bytes = 0;  // y of the paper: bytes of the values in the largest segment
};

Segments segments_above(const Chain& chain, double b) {
  Segments segments;
  double since_cut = 0;
  for (int i = 0; i < chain.length(); ++i) {
    since_cut += static_cast<double>(chain.links[i].tapes[0].bytes);
    segments.longest_bytes = std::max(segments.longest_bytes, since_cut);
    if (since_cut <= b || i + 1 == chain.length()) continue;
    segments.starts.push_back(i + 1);
    segments.kept_bytes += static_cast<double>(chain.boundary_bytes(i + 1));
    since_cut = 0;
  }
  return segments;
}

}  // namespace

// Searches b in [B / sqrt 2, B sqrt 2] as published, with B = sqrt(x y) of the finest cut. Returns
// the cheapest plan that fits.
Schedule schedule_chen(const Chain& chain, const ScheduleRequest& request) {
  constexpr int kSteps = 32;
  const Segments finest = segments_above(chain, 0);
  const double middle = std::sqrt(finest.kept_bytes * finest.longest_bytes);
  Schedule best;
  for (int step = 0; step <= kSteps; ++step) {
    const double b = middle * std::exp2(static_cast<double>(step) / kSteps - 0.5);
    const Schedule plan =
        judge_plan(chain, segment_actions(chain, segments_above(chain, b).starts), request.memory_bytes);
    best = step == 0 ? plan : better_plan(std::move(best), plan);
  }
  return best;
}

}  // namespace reprise
