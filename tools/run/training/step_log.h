// The log: one line of JSON for each step or evaluation. Each line is written without delay, so
// that the log of a killed run is complete up to its last step. Uses the heap only for metrics.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/trainer.h"
#include "tools/run/inference/metrics.h"

namespace reprise {

// The values of one step.
struct StepLine {
  uint64_t step;  // counted from 1
  double loss, grad_norm, lr, seconds;
  uint64_t planned_bytes, measured_bytes;
  // Budget of the plan that ran the step; unset if the program has only one plan
  std::optional<uint64_t> budget_bytes = {};
  std::optional<JudgedAnswers> answers = {};  // set if the loss judges pairs
};
// The values of one evaluation.
struct EvaluationLine {
  uint64_t step;
  double eval_loss, accuracy;  // accuracy: NaN if answers cannot be right or wrong
  std::optional<JudgedAnswers> answers = {};
  std::vector<Metric> metrics = {};
};

// An open log file.
class StepLog {
 public:
  StepLog() = default;
  ~StepLog();
  StepLog(const StepLog&) = delete;
  StepLog& operator=(const StepLog&) = delete;

  // Opens the log. If the file exists, appends to it; a resumed run keeps the lines of the last run
  // up to its own step. Throws UserError, also if the file is not a log or is one of `inputs`.
  void open(const std::string& path, const std::vector<std::string>& inputs, uint64_t resumed_step);
  bool is_open() const { return descriptor_ >= 0; }
  void write(const StepLine& line);
  void write(const EvaluationLine& line);
  // Flushes the file to the disk (fdatasync); no effect on a pipe or a terminal.
  void flush() const;

 private:
  void write_text(const char* text, int length);
  std::string path_, line_;  // line_: buffer for the line of an evaluation
  int descriptor_ = -1;
};

}  // namespace reprise
