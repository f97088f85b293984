// See stop_signal.h. The handler formats its text itself, because snprintf may use locks.
#include "tools/run/session/stop_signal.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <initializer_list>

#include "tools/files/io/leftovers.h"
#include "tools/files/progress/terminal.h"

namespace reprise {
namespace {

std::atomic<int> first_signal{0}, count{0};
std::atomic<int64_t> last_ms{0};  // time of the last signal
std::atomic<Activity> activity{Activity::kSettingUp};
// Begin of the current unit of work (begin_turn), and its usual duration; 0 if unknown
std::atomic<int64_t> turn_began_ms{0}, turn_usual_ms{0};
// clears_line: true if stderr is a terminal, which may show a progress line.
std::atomic<bool> is_silent{false}, clears_line{false};
static_assert(std::atomic<int64_t>::is_always_lock_free && std::atomic<Activity>::is_always_lock_free,
              "a signal's handler may not wait");

int64_t now_ms() {
  struct timespec time = {};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<int64_t>(time.tv_sec) * 1000 + time.tv_nsec / 1000000;
}

// One line of text, formatted without heap and without locks.
class Line {
 public:
  Line() { add(clears_line ? "\r\x1b[K" : ""); }
  void add(const char* words) {
    const size_t bytes = std::min(std::strlen(words), sizeof text_ - length_);
    std::memcpy(text_ + length_, words, bytes);
    length_ += bytes;
  }
  void add(int64_t number) {
    char digits[24];
    size_t at = sizeof digits;
    digits[--at] = 0;
    do digits[--at] = static_cast<char>('0' + number % 10);
    while ((number /= 10) > 0);
    add(digits + at);
  }
  void write() {
    add("\n");
    if (!is_silent && ::write(STDERR_FILENO, text_, length_) < 0) return;  // a write that fails is ignored
  }

 private:
  char text_[200];
  size_t length_ = 0;
};

const char* words_of(Activity what) {
  switch (what) {
    case Activity::kSettingUp: return "stopping before the first step";
    case Activity::kTraining: return "stopping after this step";
    case Activity::kEvaluating: return "stopping after this micro-batch of the evaluation";
    case Activity::kPredicting: return "stopping after this micro-batch";
    case Activity::kAnswering: return "stopping after this token";
    case Activity::kSaving: return "stopping when the snapshot is saved";
    case Activity::kEnding: return "stopping after what is being written";
  }
  return "stopping";
}

void say_first() {
  Line line;
  line.add(words_of(activity));
  const int64_t usual = turn_usual_ms, left = usual - (now_ms() - turn_began_ms);
  if (activity == Activity::kTraining && usual > 0 && left > 0) {
    line.add(", about ");
    line.add((left + 999) / 1000);
    line.add(" s");
  }
  line.add("; again: stop now");
  line.write();
}

[[noreturn]] void end_at_once(int signal) {
  remove_leftovers();
  Line line;
  line.add("stopped at once by a signal; what was not saved is lost");
  line.write();
  ::_exit(128 + signal);
}

// Prints the effect of a second signal. A snapshot that is being saved is still completed, which
// may take seconds.
void say_second() {
  Line line;
  line.add(activity == Activity::kSaving ? "stopping when the snapshot is saved; again: stop at once"
                                         : "stopping at the next row, and nothing more is saved; again: stop at once");
  line.write();
}

void note(int signal) {
  const int error = errno;
  constexpr int64_t kOneWishMs = 100;
  const int64_t now = now_ms(), before = last_ms.exchange(now);
  const bool is_same_wish = count > 0 && (signal == SIGHUP || now - before < kOneWishMs);
  if (!is_same_wish) {
    const int number = ++count;
    if (number == 1) first_signal = signal;
    if (number == 1) say_first();
    const bool runs_rows = activity != Activity::kSettingUp && activity != Activity::kEnding;
    if (number > 2 || (number == 2 && !runs_rows)) end_at_once(first_signal);
    if (number == 2) say_second();
  }
  errno = error;
}

void end_program(int signal) {
  remove_leftovers();
  Line line;
  line.add("stopped by a signal; nothing half-written is left");
  line.write();
  ::signal(signal, SIG_DFL);
  sigset_t only;
  ::sigemptyset(&only);
  ::sigaddset(&only, signal);
  ::sigprocmask(SIG_UNBLOCK, &only, nullptr);
  ::raise(signal);
}

void handle(int number, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  ::sigaction(number, &action, nullptr);
}

bool is_ignored(int number) {
  struct sigaction before = {};
  return ::sigaction(number, nullptr, &before) == 0 && before.sa_handler == SIG_IGN;
}

}  // namespace

void set_up_signals() {
  first_signal = count = 0;
  activity = Activity::kSettingUp;
  clears_line = stderr_is_terminal();
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    if (number != SIGHUP || !is_ignored(number)) handle(number, note);
  }
  ::signal(SIGXFSZ, SIG_IGN);
  ::signal(SIGPIPE, SIG_IGN);
}

void set_up_ending_signals() {
  clears_line = stderr_is_terminal();
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    if (!is_ignored(number)) handle(number, end_program);
  }
}

int stop_signal() { return first_signal; }
bool stops_at_row() { return count >= 2; }
void silence_stop_signals() { is_silent = true; }

Doing::Doing(Activity what) : before_(activity) {
  activity = what;
  turn_usual_ms = 0;
}
Doing::~Doing() {
  activity = before_;
  turn_usual_ms = 0;
}

void Doing::begin_turn(double usual_seconds) {
  turn_began_ms = now_ms();
  turn_usual_ms = static_cast<int64_t>(usual_seconds * 1000);
}

}  // namespace reprise
