// What an evaluation says of a net beside its loss and accuracy: the numbers by which people judge what the loss wants.
// Here and not in lib because they are sums over what the net writes, which no step needs.
#pragma once

#include <string>
#include <vector>

#include "tools/inference/outputs.h"
#include "tools/inference/pair_metrics.h"
#include "tools/models/model.h"

namespace reprise {

struct Metric {
  const char* name;
  double value;               // not a number where nothing was judged
  std::vector<double> each = {};  // of each label, or class; and under which name
  const char* each_name = nullptr;
};

// All sums are in f64, over everything that has a label.
class Metrics {
 public:
  explicit Metrics(const ModelDescription& model) : model_(model) {}
  void add(const NetOutputs& outputs);
  // Numbers: mae, rmse. Labels that are true or false: f1, the mean over labels of 2 TP / (2 TP + FP + FN), of those that are true or said to be
  // somewhere, and each one's accuracy. Classes of places: miou, the mean over classes of the places that have it and are said to, by those of
  // which either holds, of those where one does. Classes: top5, the share whose label is among the five largest, where there are more. Pairs that
  // belong together, or not: recall1, recall5 and recall10, each where there are more pairs (pair_metrics.h). Pairs that are so alike: the correlation
  // of their cosines with the targets, mae and rmse.
  std::vector<Metric> values() const;

 private:
  struct Tally {
    double both = 0, said = 0, is = 0, right = 0, judged = 0;
  };
  void add_numbers(const NetOutputs& outputs);
  void add_labels(const NetOutputs& outputs);
  void add_classes(const NetOutputs& outputs);
  std::vector<Metric> recalls() const;

  const ModelDescription model_;
  double distance_ = 0, square_ = 0, count_ = 0, among_five_ = 0;
  std::vector<Tally> tallies_;  // of each label, or class
  PairMetrics pairs_;
};

// ", name 1.234" of each, for a line.
std::string metrics_text(const std::vector<Metric>& metrics);

}  // namespace reprise
