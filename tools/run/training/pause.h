// Pauses a training while a control file or SIGTSTP (Ctrl-Z) requests it. It is for boards that
// train in their spare time, because reading a camera or giving an answer has priority.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "lib/trainer.h"
#include "tools/run/training/control_file.h"

namespace reprise {

// Installs a handler for SIGTSTP: the process stops at its next pause point, not in the middle of a
// row. If the signal was ignored before, it stays ignored.
void set_up_pause_signal();

// Blocks its caller while the control file contains "pause", or while SIGTSTP has stopped the
// process. The device is idle meanwhile.
class Pause {
 public:
  // Keeps references to the arguments. `control` is null if there is no control file. `say` is
  // called with a line when a pause begins and when it ends.
  Pause(ControlFile* control, const Trainer& trainer, double (*seconds)(), std::function<void(const std::string&)> say);

  // Waits while a pause is requested; call it between steps or rows. A signal that ends the
  // training also ends a pause by the control file, so that the current step can finish.
  void wait_while_asked();
  // Returns an observer that calls wait_while_asked() before each row. The observer refers to this
  // object.
  RowObserver observer();
  // Returns the total seconds of all pauses so far.
  double paused_seconds() const { return paused_; }

 private:
  // Minimum time between two reads of the control file; time between two checks during a pause
  static constexpr double kLookSeconds = 0.02, kSleepSeconds = 0.05;
  bool is_asked();
  void pause_while(const std::string& reason, const std::function<void()>& wait);

  ControlFile* const control_;
  const Trainer& trainer_;
  double (*const seconds_)();
  const std::function<void(const std::string&)> say_;
  double looked_ = -kLookSeconds, paused_ = 0;
};

}  // namespace reprise
