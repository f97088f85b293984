// Draws at most five times per second on a terminal. The rate is the average of the whole run so
// far, including evaluations.
#include "tools/files/progress/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tools/files/progress/terminal.h"

namespace reprise {

Progress::Progress(const char* label, uint64_t first_step, uint64_t last_step, uint64_t samples_per_step,
                   const char* unit, bool quiet, double now)
    : label_(label),
      first_(first_step),
      last_(last_step),
      samples_(samples_per_step),
      unit_(unit),
      quiet_(quiet),
      terminal_(stderr_is_terminal()),
      start_(now),
      pause_(terminal_ ? 0.2 : kLinePauseSeconds),
      shown_(now - pause_) {}

void Progress::show(uint64_t step, const char* words, double now) {
  if (quiet_ || (step != last_ && now - shown_ < pause_)) return;
  shown_ = now;
  const double done = static_cast<double>(step - first_), all = static_cast<double>(last_ - first_),
               elapsed = now - start_;
  const double rate = elapsed > 0 ? done * static_cast<double>(samples_) / elapsed : 0;
  const int left = done > 0 ? static_cast<int>(elapsed * (all - done) / done + 0.5) : 0;
  char numbers[160], line[240];
  std::snprintf(numbers, sizeof numbers, "%llu/%llu  %s%s%.0f %s/s  %d:%02d left",
                static_cast<unsigned long long>(step), static_cast<unsigned long long>(last_), words,
                *words == 0 ? "" : "  ", rate, unit_, left / 60, left % 60);
  const int columns = stderr_columns();
  const int width = std::clamp(columns - 6 - static_cast<int>(std::strlen(label_) + std::strlen(numbers)), 0, 30);
  const int filled = all > 0 ? static_cast<int>(width * done / all) : width;
  char bar[31];
  std::memset(bar, '.', sizeof bar);
  std::memset(bar, '#', static_cast<size_t>(filled));
  bar[width] = 0;
  int length = std::snprintf(line, sizeof line, "%s%s[%s] %s%s", terminal_ ? "\r" : "", label_, bar, numbers,
                             terminal_ ? "  " : "\n");
  if (terminal_) length = std::min(length, columns);
  if (::write(STDERR_FILENO, line, static_cast<size_t>(length)) < 0) return;  // a write that fails is ignored
  drawn_ = true;
}

void Progress::finish() {
  if (drawn_ && terminal_ && ::write(STDERR_FILENO, "\n", 1) < 0) return;
  drawn_ = false;
}

}  // namespace reprise
