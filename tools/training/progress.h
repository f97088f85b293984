// The progress line: a bar with loss, samples a second and time left, on stderr.
// Here because a person wants to see it; on a terminal it redraws, elsewhere it prints a line now and then.
// It must not use the heap: it runs between steps.
#pragma once

#include <cstdint>

namespace reprise {

class Progress {
 public:
  // `unit`: what is counted, "images" or "tokens".
  Progress(uint64_t first_step, uint64_t last_step, uint64_t samples_per_step, const char* unit, bool quiet, double now_seconds);
  void show(uint64_t step, double loss, double now_seconds);
  void finish();

 private:
  const uint64_t first_, last_, samples_;
  const char* const unit_;
  const bool quiet_, terminal_;
  const double start_;
  double shown_ = -1;
  bool drawn_ = false;
};

}  // namespace reprise
