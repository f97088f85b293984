// Metrics of a model that compares pairs: how well first inputs find their second inputs, or how
// near the cosines are to their targets. The vectors of the whole set are compared. Two f32 vectors
// for each pair therefore stay in memory until the evaluation ends.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/run/inference/outputs.h"

namespace reprise {

// Collects the vectors of pairs and computes the metrics.
class PairMetrics {
 public:
  void add(const NetOutputs& outputs);  // adds the outputs before a pair loss (lib/ops/pair_loss.h)

  // Returns, for each element m of `maximum`, the share of pairs in which the second input is among
  // the m nearest to the first. Only pairs with a target above 0 count; the candidates are all
  // second inputs of the set. Nearness is the cosine; among equal cosines the earlier pair counts
  // as nearer. Takes quadratic time in the number of pairs.
  std::vector<double> recalls(const std::vector<uint64_t>& maximum) const;
  uint64_t pairs() const { return targets_.size(); }

  // Returns a statistic of the cosines and their targets; NaN if there are no pairs. correlation()
  // is Pearson's. It is also NaN if all cosines or all targets are equal.
  double mean_distance() const;
  double root_mean_square() const;
  double correlation() const;

 private:
  double mean(double (*of)(double cosine, double target)) const;

  uint32_t D_ = 0;
  // [pairs, D]; each vector is scaled to length 1, but a zero vector stays zero.
  std::vector<float> firsts_, seconds_;
  std::vector<float> cosines_, targets_;  // [pairs]
};

}  // namespace reprise
