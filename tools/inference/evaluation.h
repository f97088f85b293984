// The evaluation of what was trained, over a data set or a part of it: stopped by a signal within a micro-batch, with progress.
#pragma once

#include <functional>
#include <limits>
#include <vector>

#include "lib/port.h"
#include "lib/trainer.h"
#include "tools/data/dataset.h"
#include "tools/inference/metrics.h"
#include "tools/recipes/recipe.h"

namespace reprise {

struct EvaluationLimits {
  uint64_t most_batches = 0;  // micro-batches; 0: the whole set
  bool quiet = false;         // no progress
  std::function<bool()> stops = {};  // asked before each micro-batch, by every rank of several alike; none: whether a signal has come
};

struct EvaluationResult {
  Status status;          // of the trainer
  bool stopped = false;   // by a signal: the report says nothing
  EvaluationReport report;
  std::vector<Metric> metrics;
  bool has_accuracy = true;  // not of numbers, none of which is right or wrong

  // NaN where there is none.
  double accuracy() const {
    if (!has_accuracy) return std::numeric_limits<double>::quiet_NaN();
    return report.labelled == 0 ? 0 : static_cast<double>(report.correct) / static_cast<double>(report.labelled);
  }
};

// What progress counts: "tokens", "images" or "texts".
const char* counted_in(const Recipe& recipe);

// Throws what the data set throws.
EvaluationResult evaluate_set(Trainer& trainer, const Port& port, const Recipe& recipe, Dataset& data, const EvaluationLimits& limits);

}  // namespace reprise
