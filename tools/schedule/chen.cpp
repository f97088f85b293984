// Cut the chain where the bytes since the last cut exceed b, recompute each segment once; search b.
// Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", Algorithm 3 and its budget search (section 4.2).
// It must not know costs: it places by bytes alone.
#include <algorithm>
#include <cmath>

#include "tools/schedule/strategy.h"

namespace reprise {
namespace {

struct Segments {
  std::vector<int> starts = {0};
  double kept_bytes = 0;     // x of the paper: the boundaries at the cuts
  double longest_bytes = 0;  // y: the largest segment's values
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

// Around B = sqrt(x y) of the finest cut, in [B / sqrt 2, B sqrt 2] as published: the cheapest plan that fits.
Schedule schedule_chen(const Chain& chain, const ScheduleRequest& request) {
  constexpr int kSteps = 32;
  const Segments finest = segments_above(chain, 0);
  const double middle = std::sqrt(finest.kept_bytes * finest.longest_bytes);
  Schedule best;
  for (int step = 0; step <= kSteps; ++step) {
    const double b = middle * std::exp2(static_cast<double>(step) / kSteps - 0.5);
    const Schedule plan = judge_plan(chain, segment_actions(chain, segments_above(chain, b).starts), request.memory_bytes);
    best = step == 0 ? plan : better_plan(std::move(best), plan);
  }
  return best;
}

}  // namespace reprise
