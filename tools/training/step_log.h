// The log: one JSON line a step or evaluation, written at once, and without heap where there are no metrics.
// Here so that a killed run's log is whole up to its last step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/trainer.h"
#include "tools/inference/metrics.h"

namespace reprise {

struct StepLine {
  uint64_t step;  // from 1
  double loss, grad_norm, lr, seconds;
  uint64_t planned_bytes, measured_bytes;
  std::optional<uint64_t> budget_bytes = {};  // of the plan that ran it, where the program has several
  std::optional<JudgedAnswers> answers = {};  // where pairs are judged
};
struct EvaluationLine {
  uint64_t step;
  double eval_loss, accuracy;  // accuracy: NaN where nothing is right or wrong
  std::optional<JudgedAnswers> answers = {};
  std::vector<Metric> metrics = {};
};

class StepLog {
 public:
  StepLog() = default;
  ~StepLog();
  StepLog(const StepLog&) = delete;
  StepLog& operator=(const StepLog&) = delete;

  // Appends to a log that is there; of the run that wrote last a resumed one keeps the lines up to its step. Throws UserError, also where
  // the file is no log, or one of `inputs`.
  void open(const std::string& path, const std::vector<std::string>& inputs, uint64_t resumed_step);
  bool is_open() const { return descriptor_ >= 0; }
  void write(const StepLine& line);
  void write(const EvaluationLine& line);
  // To the disk, as far as what it is written to has one.
  void flush() const;

 private:
  void write_text(const char* text, int length);
  std::string path_, line_;  // line_: of an evaluation
  int descriptor_ = -1;
};

}  // namespace reprise
