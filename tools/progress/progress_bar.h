// The progress line: a bar with what a person wants to know beside it, the rate and the time left, on stderr.
// On a terminal it redraws, elsewhere it prints a line now and then.
// It must not use the heap: it runs between steps.
#pragma once

#include <cstdint>

namespace reprise {

class Progress {
 public:
  // `unit`: what is counted, "images" or "tokens". `pause_seconds`: between two lines that are no terminal's.
  Progress(const char* label, uint64_t first_step, uint64_t last_step, uint64_t samples_per_step, const char* unit, bool quiet, double now_seconds,
           double pause_seconds = 10);
  // `words`: a few, as "loss 0.1234"; may be empty.
  void show(uint64_t step, const char* words, double now_seconds);
  // True if show() would print a line now for a step that is not the last.
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
