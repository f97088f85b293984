// Records when the rows of a run begin and end, in the trace format of Chrome and Perfetto
// (tools/FILES.md). A plan lists the rows of a step, and a profile predicts their time; only a run
// shows the real time.
#pragma once

#include <string>
#include <vector>

#include "lib/trainer.h"
#include "tools/files/io/output.h"
#include "tools/run/session/compiled_plan.h"
#include "tools/run/session/program_options.h"

namespace reprise {

// The trace of some steps.
class RowTrace {
 public:
  // Allocates memory for the times of all traced steps. Throws UserError with status kUsage if they
  // have too many rows, and UserError if the file cannot be written.
  RowTrace(const Output& to, const CompiledPlan& compiled, const TracedSteps& steps);

  // True if this step should be traced.
  bool wants(uint64_t step) const { return !written_ && steps_.first <= step && step <= steps_.last; }
  const Output& output() const { return to_; }
  bool is_written() const { return written_; }
  uint64_t steps_done() const { return done_; }
  std::string summary() const;  // returns one line for the user

  // Starts a traced step. Until end_step(), the trainer must use observer(). The observer waits
  // until each row is complete, because a device otherwise only enqueues it.
  void begin_step(const Trainer& trainer);
  RowObserver observer();
  // Ends the step. If it failed (`done` is false), its times are discarded.
  void end_step(bool done);

  // Writes the recorded steps to the file; later calls do nothing. Writes no file if no step was
  // recorded. Throws UserError.
  void write();

 private:
  void note() { times_[next_++] = port_.seconds(); }

  const Output to_;
  const CompiledPlan compiled_;
  const Port& port_;
  const TracedSteps steps_;
  // In seconds, for each step: its begin; for each of its programs with rows, the begin of the
  // first row and then the end of each row; the step's end.
  std::vector<double> times_;
  size_t next_ = 0, step_begin_ = 0;
  uint64_t done_ = 0;
  const Trainer* trainer_ = nullptr;
  bool written_ = false;
};

}  // namespace reprise
