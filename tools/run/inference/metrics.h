// Metrics of an evaluation in addition to loss and accuracy: sums over the model's outputs. They
// are not part of lib, because no training step needs them.
#pragma once

#include <string>
#include <vector>

#include "tools/plan/models/model.h"
#include "tools/run/inference/outputs.h"
#include "tools/run/inference/pair_metrics.h"

namespace reprise {

// One metric and its value.
struct Metric {
  const char* name;
  double value;  // NaN if there was no output with a label
  // `each`: the metric's values for each label or class; empty if there are none. `each_name`: the
  // name of this list in the log; null if the list is empty.
  std::vector<double> each = {};
  const char* each_name = nullptr;
};

// Computes the metrics over all outputs that have a label. All sums are in f64.
class Metrics {
 public:
  explicit Metrics(const ModelDescription& model) : model_(model) {}
  void add(const NetOutputs& outputs);
  // Returns the metrics for the model's kind of target:
  //   numbers                mae, rmse
  //   labels, true or false  f1, the mean over labels of 2 TP / (2 TP + FP + FN), and each label's
  //                          accuracy
  //   class of each pixel    miou, the mean over classes of intersection / union of two sets: the
  //                          pixels with this label, and the pixels with this prediction; and the
  //                          ratio for each class
  //   classes                top5, the share of rows whose label is among the five largest outputs,
  //                          if there are more than five classes
  //   pairs that match       recall1, recall5, recall10 (pair_metrics.h): recallN only if there are
  //                          more than N pairs
  //   similarities of pairs  correlation of the cosines with the targets, mae, rmse
  // The means omit labels and classes whose ratio is 0 / 0.
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
  std::vector<Tally> tallies_;  // one element for each label or class
  PairMetrics pairs_;
};

// Returns the text ", name 1.234" for each metric, concatenated.
std::string metrics_text(const std::vector<Metric>& metrics);

}  // namespace reprise
