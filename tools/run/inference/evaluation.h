// Evaluates a model on a data set, or on a part of it, and shows the progress. A signal stops the
// evaluation between two micro-batches.
#pragma once

#include <functional>
#include <limits>
#include <vector>

#include "lib/port.h"
#include "lib/trainer.h"
#include "tools/plan/recipes/recipe.h"
#include "tools/run/data/dataset.h"
#include "tools/run/inference/metrics.h"

namespace reprise {

// The options of an evaluation.
struct EvaluationLimits {
  uint64_t max_batches = 0;  // maximum number of micro-batches; 0: the whole set
  bool quiet = false;        // true: prints no progress
  // Returns true to stop the evaluation; called before each micro-batch, on every rank. If unset, a
  // signal stops it.
  std::function<bool()> stops = {};
};

// The result of an evaluation.
struct EvaluationResult {
  Status status;         // the trainer's status
  bool stopped = false;  // true if a signal stopped the evaluation; `report` is then invalid
  EvaluationReport report;
  std::vector<Metric> metrics;
  bool has_accuracy = true;  // false if targets are numbers

  // Returns the share of labels that were predicted correctly; NaN if has_accuracy is false.
  double accuracy() const {
    if (!has_accuracy) return std::numeric_limits<double>::quiet_NaN();
    return report.labelled == 0 ? 0 : static_cast<double>(report.correct) / static_cast<double>(report.labelled);
  }
};

// Returns the unit of progress: "tokens", "images" or "texts".
const char* counted_in(const Recipe& recipe);

// Evaluates `data` and returns the sums over it. Passes on exceptions of the data set.
EvaluationResult evaluate_set(Trainer& trainer, const Port& port, const Recipe& recipe, Dataset& data,
                              const EvaluationLimits& limits);

}  // namespace reprise
