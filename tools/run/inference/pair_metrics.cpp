// See pair_metrics.h.
#include "tools/run/inference/pair_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace reprise {
namespace {

void add_unit(std::vector<float>& units, const float* vector, uint32_t D) {
  double squares = 0;
  for (uint32_t c = 0; c < D; ++c) squares += static_cast<double>(vector[c]) * static_cast<double>(vector[c]);
  const double length = std::sqrt(squares);
  for (uint32_t c = 0; c < D; ++c)
    units.push_back(length < 1e-12 ? 0.0f : static_cast<float>(static_cast<double>(vector[c]) / length));
}

// Returns the dot product of two unit vectors. It is summed in several lanes, which a compiler can
// vectorise.
float cosine_of(const float* a, const float* b, uint32_t D) {
  constexpr uint32_t kLanes = 16;
  float lanes[kLanes] = {};
  uint32_t c = 0;
  for (; c + kLanes <= D; c += kLanes) {
    for (uint32_t k = 0; k < kLanes; ++k) lanes[k] += a[c + k] * b[c + k];
  }
  for (uint32_t k = 0; c + k < D; ++k) lanes[k] += a[c + k] * b[c + k];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

}  // namespace

void PairMetrics::add(const NetOutputs& outputs) {
  D_ = outputs.columns;
  for (uint64_t pair = 0; pair < outputs.rows / 2; ++pair) {
    if (!is_labelled(outputs.stored, outputs.targets(), pair)) continue;
    const float* first = outputs.numbers.data() + 2 * pair * D_;
    add_unit(firsts_, first, D_);
    add_unit(seconds_, first + D_, D_);
    targets_.push_back(outputs.targets()[pair]);
    cosines_.push_back(cosine_of(firsts_.data() + firsts_.size() - D_, seconds_.data() + seconds_.size() - D_, D_));
  }
}

// Ranks several first inputs at a time, so that they all use a second input while it is in the
// cache.
std::vector<double> PairMetrics::recalls(const std::vector<uint64_t>& maximum) const {
  constexpr uint64_t kAtOnce = 16;
  std::vector<uint64_t> asked;
  for (uint64_t i = 0; i < pairs(); ++i) {
    if (targets_[i] > 0) asked.push_back(i);
  }
  std::vector<double> found(maximum.size());
  for (uint64_t at = 0; at < asked.size(); at += kAtOnce) {
    const uint64_t count = std::min<uint64_t>(kAtOnce, asked.size() - at);
    uint64_t nearer[kAtOnce] = {};
    for (uint64_t j = 0; j < pairs(); ++j) {
      for (uint64_t k = 0; k < count; ++k) {
        const uint64_t i = asked[at + k];
        const float cosine = cosine_of(firsts_.data() + i * D_, seconds_.data() + j * D_, D_);
        nearer[k] += cosine > cosines_[i] || (cosine == cosines_[i] && j < i);
      }
    }
    for (uint64_t k = 0; k < count; ++k) {
      for (size_t m = 0; m < maximum.size(); ++m) found[m] += nearer[k] < maximum[m];
    }
  }
  for (double& share : found) share /= static_cast<double>(asked.size());
  return found;
}

double PairMetrics::mean(double (*of)(double cosine, double target)) const {
  double sum = 0;
  for (uint64_t i = 0; i < pairs(); ++i) sum += of(static_cast<double>(cosines_[i]), static_cast<double>(targets_[i]));
  return sum / static_cast<double>(pairs());
}

double PairMetrics::mean_distance() const {
  return mean([](double cosine, double target) { return std::abs(cosine - target); });
}
double PairMetrics::root_mean_square() const {
  return std::sqrt(mean([](double cosine, double target) { return (cosine - target) * (cosine - target); }));
}

double PairMetrics::correlation() const {
  const double cosine = mean([](double c, double) { return c; }), target = mean([](double, double t) { return t; });
  double both = 0, of_cosines = 0, of_targets = 0;
  for (uint64_t i = 0; i < pairs(); ++i) {
    const double c = static_cast<double>(cosines_[i]) - cosine, t = static_cast<double>(targets_[i]) - target;
    both += c * t, of_cosines += c * c, of_targets += t * t;
  }
  return of_cosines > 0 && of_targets > 0 ? both / std::sqrt(of_cosines * of_targets)
                                          : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace reprise
