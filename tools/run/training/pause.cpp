// See pause.h.
#include "tools/run/training/pause.h"

#include <signal.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "tools/run/session/stop_signal.h"

namespace reprise {
namespace {

volatile sig_atomic_t stop_asked = 0;
void note_stop(int) { stop_asked = 1; }

// Stops the process with SIGSTOP. A shell that waits for it sees the same stop as after SIGTSTP.
void stop_process() {
  stop_asked = 0;
  ::raise(SIGSTOP);
}

}  // namespace

void set_up_pause_signal() {
  struct sigaction action = {}, before = {};
  action.sa_handler = note_stop;
  action.sa_flags = SA_RESTART;
  if (::sigaction(SIGTSTP, nullptr, &before) == 0 && before.sa_handler != SIG_IGN)
    ::sigaction(SIGTSTP, &action, nullptr);
}

Pause::Pause(ControlFile* control, const Trainer& trainer, double (*seconds)(),
             std::function<void(const std::string&)> say)
    : control_(control), trainer_(trainer), seconds_(seconds), say_(std::move(say)) {}

bool Pause::is_asked() {
  if (control_ == nullptr || stop_signal() != 0) return false;
  if (seconds_() >= looked_ + kLookSeconds) {
    control_->look();
    looked_ = seconds_();
  }
  return control_->says(kPauseCommand);
}

void Pause::wait_while_asked() {
  if (stop_asked != 0) pause_while("SIGTSTP", stop_process);
  if (!is_asked()) return;
  pause_while(control_->path() + " says \"pause\"", [this] {
    while (is_asked()) {
      if (stop_asked != 0) stop_process();
      std::this_thread::sleep_for(std::chrono::duration<double>(kSleepSeconds));
    }
  });
}

// Ignores an error of synchronise(): the next row reports it again.
void Pause::pause_while(const std::string& reason, const std::function<void()>& wait) {
  (void)trainer_.backend->host.synchronise(trainer_.context);
  const double begin = seconds_();
  say_(reason + "; step " + std::to_string(trainer_.step + 1) + " waits");
  wait();
  char words[48];
  std::snprintf(words, sizeof words, "over after %.1f s", seconds_() - begin);
  say_(words);
  paused_ += seconds_() - begin;
}

RowObserver Pause::observer() {
  return {this, [](void* self, ProgramId, uint32_t) { static_cast<Pause*>(self)->wait_while_asked(); }, nullptr};
}

}  // namespace reprise
