// The rows of a run in time, in the trace format of Chrome and Perfetto (tools/FORMATS.md).
// Here because a plan says what a step does and a profile what it should take; where the time really goes only a run can say.
#pragma once

#include <string>
#include <vector>

#include "lib/trainer.h"
#include "tools/formats/output.h"
#include "tools/session/compiled_plan.h"
#include "tools/session/program_options.h"

namespace reprise {

class RowTrace {
 public:
  // Reserves what the steps' rows need. Throws UserError of status kUsage where they are too many, or the file cannot be written.
  RowTrace(const Output& to, const CompiledPlan& compiled, const TracedSteps& steps);

  bool wants(uint64_t step) const { return !written_ && steps_.first <= step && step <= steps_.last; }
  const Output& output() const { return to_; }
  bool is_written() const { return written_; }
  uint64_t steps_done() const { return done_; }
  std::string summary() const;  // for a person, a line

  // Around a step that is wanted, with the observer in the trainer meanwhile. The observer waits for every row, which a device would only queue.
  void begin_step(const Trainer& trainer);
  RowObserver observer();
  // A step that failed is forgotten.
  void end_step(bool done);

  // The steps so far, once; where there are none, no file. Throws UserError.
  void write();

 private:
  void note() { times_[next_++] = port_.seconds(); }

  const Output to_;
  const CompiledPlan compiled_;
  const Port& port_;
  const TracedSteps steps_;
  std::vector<double> times_;  // of each step: its begin; of each program that it runs its begin and each row's end; its end
  size_t next_ = 0, step_begin_ = 0;
  uint64_t done_ = 0;
  const Trainer* trainer_ = nullptr;
  bool written_ = false;
};

}  // namespace reprise
