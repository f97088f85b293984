// What an evaluation says of a net that compares pairs: whether each first finds its second, or how near cosines come to what they should be.
// Here because the vectors of the whole set are compared, which no step needs: they stay in memory until the evaluation ends, two of f32 for each pair.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/inference/outputs.h"

namespace reprise {

class PairMetrics {
 public:
  void add(const NetOutputs& outputs);  // of a loss of pairs (lib/ops/pair_loss.h)

  // The share of the pairs that belong together, those with a target above 0, whose second is among the `most` that are nearest to the first by
  // the cosine, of all pairs' seconds. Of equal cosines that of the earlier pair counts as nearer. It takes time by the square of the pairs.
  std::vector<double> recalls(const std::vector<uint64_t>& most) const;
  uint64_t pairs() const { return targets_.size(); }

  // Of the cosines beside the targets; not numbers where there is no pair, correlation (Pearson's) where all of one are equal.
  double mean_distance() const;
  double root_mean_square() const;
  double correlation() const;

 private:
  double mean(double (*of)(double cosine, double target)) const;

  uint32_t D_ = 0;
  std::vector<float> firsts_, seconds_;  // [pairs, D], each of length 1; of length 0 what has none
  std::vector<float> cosines_, targets_;
};

}  // namespace reprise
