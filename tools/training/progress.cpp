// Drawn at most five times a second on a terminal, every ten seconds elsewhere.
// The rate is that of the whole run so far, evaluations included.
#include "tools/training/progress.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace reprise {

Progress::Progress(uint64_t first_step, uint64_t last_step, uint64_t samples_per_step, const char* unit, bool quiet, double now)
    : first_(first_step), last_(last_step), samples_(samples_per_step), unit_(unit), quiet_(quiet), terminal_(::isatty(STDERR_FILENO) == 1),
      start_(now) {}

void Progress::show(uint64_t step, double loss, double now) {
  if (quiet_) return;
  if (step != last_ && now - shown_ < (terminal_ ? 0.2 : 10.0)) return;
  shown_ = now;
  constexpr int kWidth = 30;
  const double done = static_cast<double>(step - first_), all = static_cast<double>(last_ - first_), elapsed = now - start_;
  const int filled = all > 0 ? static_cast<int>(kWidth * done / all) : kWidth;
  char bar[kWidth + 1];
  std::memset(bar, '.', kWidth);
  std::memset(bar, '#', static_cast<size_t>(filled));
  bar[kWidth] = 0;
  const double rate = elapsed > 0 ? done * static_cast<double>(samples_) / elapsed : 0;
  const int left = done > 0 ? static_cast<int>(elapsed * (all - done) / done + 0.5) : 0;
  char line[200];
  const int length = std::snprintf(line, sizeof line, "%s[%s] %llu/%llu  loss %.4f  %.0f %s/s  %d:%02d left%s", terminal_ ? "\r" : "", bar,
                                   static_cast<unsigned long long>(step), static_cast<unsigned long long>(last_), loss, rate, unit_, left / 60,
                                   left % 60, terminal_ ? "  " : "\n");
  if (::write(STDERR_FILENO, line, static_cast<size_t>(length)) < 0) return;  // nobody is watching
  drawn_ = true;
}

void Progress::finish() {
  if (drawn_ && terminal_ && ::write(STDERR_FILENO, "\n", 1) < 0) return;
  drawn_ = false;
}

}  // namespace reprise
