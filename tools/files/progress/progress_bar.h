// The progress line on stderr: a bar, a few words, the rate and the time left. A terminal redraws
// the line; other outputs get a line every kLinePauseSeconds. It is shown between steps and must
// not allocate heap memory.
#pragma once

#include <cstdint>

namespace reprise {

// The progress line of one run.
class Progress {
 public:
  // Starts the clock at `now_seconds`. `unit` is the name of what is counted: "images" or "tokens".
  Progress(const char* label, uint64_t first_step, uint64_t last_step, uint64_t samples_per_step, const char* unit,
           bool quiet, double now_seconds);
  // Shows the line, unless one was shown a short time ago. `words` is a short text, for example
  // "loss 0.1234"; it may be "".
  void show(uint64_t step, const char* words, double now_seconds);
  // True if show() would print a line now, for a step that is not the last one.
  bool is_due(double now_seconds) const { return !quiet_ && now_seconds - shown_ >= pause_; }
  void finish();  // ends the line

 private:
  const char* const label_;
  const uint64_t first_, last_, samples_;
  const char* const unit_;
  const bool quiet_, terminal_;
  const double start_, pause_;
  double shown_;
  bool drawn_ = false;
};

}  // namespace reprise
